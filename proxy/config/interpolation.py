"""`${NAME}`, `${NAME:-default}`, `${file:PATH}` and `$$` in the scalars of a file."""

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.proxy.config.flaws import name, quote
from tailrace.proxy.config.secret import looks_secret

LARGEST_FILE: Final = 1 << 20
STAND_IN: Final = "*" * 64
"""What stands for the text of a file that is on another machine: long enough for a key of any use."""
# A megabyte of references to a megabyte of text would be a terabyte.
MOST_TEXT: Final = 8 << 20

_REFERENCE: Final = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<inside>[^{}]*)(?P<end>\})?)")
_VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Expanded:
    """A scalar's text with its references replaced."""

    text: str
    inserted: bool
    """A reference was replaced, not just a `$$`."""
    whole: bool
    """The scalar was one reference and nothing else: its type is what the replacement looks like."""
    hidden: bool
    """Some of it came from a file, or from a variable whose name speaks of a secret."""
    faults: tuple[str, ...]
    absent: bool = False
    """Some of it is on another machine, and not known here."""


class Interpolation:
    """Replaces the references of one configuration file, and remembers which files it read."""

    def __init__(self, environ: Mapping[str, str], folder: Path, *, elsewhere: bool = False) -> None:
        """`elsewhere`: files that cannot be read may be on the machine that the configuration is for."""
        self._elsewhere = elsewhere
        self._environ = environ
        self._folder = folder
        self._room = MOST_TEXT
        self._contents: dict[Path, str | ValueError] = {}

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file a reference named, readable or not."""
        return tuple(self._contents)

    def expand(self, text: str) -> Expanded:
        """Replace all references of a scalar; faults are gathered, one for each bad reference."""
        if "$" not in text:
            return Expanded(text, False, False, False, ())
        parts: list[str] = []
        faults: list[str] = []
        inserted = hidden = absent = False
        done = 0
        for match in _REFERENCE.finditer(text):
            parts.append(text[done : match.start()])
            done = match.end()
            if match["dollar"]:
                parts.append("$")
                continue
            inserted = True
            try:
                if not match["end"]:
                    raise ValueError("`${` is not closed (references do not nest; `$$` writes a dollar sign)")
                value = self._value(match["inside"])
                absent |= value is STAND_IN
                parts.append(value)
            except ValueError as fault:
                faults.append(str(fault))
            source = match["inside"]
            hidden |= source.startswith("file:") or looks_secret(source.partition(":-")[0])
        parts.append(text[done:])
        first = _REFERENCE.match(text)
        whole = first is not None and first.end() == len(text) and not first["dollar"]
        return Expanded("".join(parts), inserted, whole, hidden, tuple(faults), absent)

    def _value(self, inside: str) -> str:
        if inside.startswith("file:"):
            value = self._content(inside.removeprefix("file:").strip())
        else:
            value = self._variable(inside)
        self._room -= len(value)
        if self._room < 0:
            raise ValueError(f"interpolation brings in more than {MOST_TEXT >> 20} MiB")
        return value

    def _variable(self, inside: str) -> str:
        match = _VARIABLE.fullmatch(inside)
        if match is None:
            raise ValueError(
                f"{quote('${' + inside + '}')} is neither ${{NAME}}, ${{NAME:-default}} nor ${{file:PATH}}"
            )
        value = self._environ.get(match[1])
        if match[2] is not None:
            value = value or match[2]
        if value is None:
            raise ValueError(f"environment variable {name(match[1])} is not set")
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError(f"environment variable {name(match[1])} is not UTF-8")
        return value

    def _content(self, path: str) -> str:
        if not path or "\0" in path:
            raise ValueError("`${file:}` names no file")
        full = self._folder / path
        if full not in self._contents:
            try:
                self._contents[full] = _read(full)
            except ValueError as fault:
                self._contents[full] = fault
        content = self._contents[full]
        if isinstance(content, ValueError):
            if self._elsewhere:
                return STAND_IN
            raise content
        return content


def _read(path: Path) -> str:
    shown = quote(str(path), longest=400)
    try:
        # A pipe or a device could block the start of the program, or never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"file {shown} is not a regular file")
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        text = content.decode()
    except OSError as error:
        raise ValueError(f"file {shown} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"file {shown} is not UTF-8 text") from None
    if len(content) > LARGEST_FILE:
        raise ValueError(f"file {shown} is larger than {LARGEST_FILE >> 20} MiB")
    return text.removesuffix("\n")
