"""`tailrace schema`: the JSON schema of a configuration file, for editors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tailrace.proxy import registry
from tailrace.proxy.config import schema
from tailrace.proxy.configuration import DEFAULT_ROLE
from tailrace.proxy.supervisor import Fatal, why

NAME = "schema"
HELP = "print the JSON schema of a configuration file, for editors"


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--out", metavar="FILE", type=Path, help="write it to a file instead of stdout")


def run(options: argparse.Namespace) -> int:
    """Print or write it."""
    text = json.dumps(both_roles(), indent=2, ensure_ascii=False) + "\n"
    if options.out is None:
        print(text, end="")
        return 0
    try:
        options.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Fatal(f"cannot write {options.out}: {why(error)}") from None
    return 0


def both_roles() -> dict[str, Any]:
    """One schema for the files of every installed role, told apart by `role`."""
    definitions: dict[str, Any] = {}
    roles = []
    dialect = ""
    for name in registry.names("roles"):
        one = schema(registry.load("roles", name).Settings)
        dialect = one.pop("$schema")
        for key, definition in one.pop("$defs", {}).items():
            if definitions.setdefault(key, definition) != definition:
                raise TypeError(f"two roles have different settings of the name {key}")
        if name != DEFAULT_ROLE:
            one["required"] = sorted({*one.get("required", ()), "role"})
        roles.append(one)
    return {"$schema": dialect, "title": "Tailrace", "oneOf": roles, "$defs": dict(sorted(definitions.items()))}
