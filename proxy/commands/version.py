"""`tailrace version`: which release this is, and on what it runs."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import version

from tailrace.proxy import serve

NAME = "version"
HELP = "print the version"


def describe(parser: argparse.ArgumentParser) -> None:
    """It has no arguments."""


def run(_options: argparse.Namespace) -> int:
    """Print it."""
    print(told())
    return 0


def told() -> str:
    """The release, and on what it runs."""
    path = "compiled" if (serve.__file__ or "").endswith((".so", ".pyd")) else "interpreted"
    return f"tailrace {version('tailrace')}, {path} (Python {platform.python_version()}, uvloop {version('uvloop')})"
