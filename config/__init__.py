"""The configuration files that come with the package; `tailrace init` and `tailrace demo` read them."""
