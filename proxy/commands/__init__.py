"""The commands of `tailrace`, one file each: `add(parsers)` describes it, `run(options)` does it."""
