"""`tailrace init`: a commented gateway.yaml and worker.yaml to begin with."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from tailrace.proxy.supervisor import Fatal, why

NAME = "init"
HELP = "write a commented gateway.yaml and worker.yaml to begin with"
FILES = ("gateway.yaml", "worker.yaml")


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--dir", metavar="DIR", type=Path, default=Path(), help="where to (default: here)")


def run(options: argparse.Namespace) -> int:
    """Write both or neither: a file that is there already is never touched."""
    there = [name for name in FILES if (options.dir / name).exists()]
    if there:
        raise Fatal(f"{options.dir / there[0]} exists already and is left as it is")
    for name in FILES:
        target: Path = options.dir / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as file:
                file.write(template(name))
        except OSError as error:
            raise Fatal(f"cannot write {target}: {why(error)}") from None
        print(f"wrote {target}")
    first = options.dir / FILES[0]
    print(f"next: edit them, then `tailrace check {first}` and `tailrace serve {first}`")
    return 0


def template(name: str) -> str:
    """The text of a configuration file that comes with the package."""
    return files("tailrace.config").joinpath(name).read_text(encoding="utf-8")
