"""What is wrong in a configuration file: gathered while reading goes on, raised once at the end."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from tailrace.proxy.config.secret import without_userinfo

# A file of another kind altogether must not become a report of a hundred thousand lines.
MOST_FLAWS: Final = 500
_LONGEST_QUOTE: Final = 60


class Place(Protocol):
    """Where something stands in a file."""

    @property
    def file(self) -> str:
        """The file's name as it was given."""

    @property
    def line(self) -> int:
        """Its line, counted from 1."""

    @property
    def where(self) -> str:
        """Its path from the root, empty if it has none."""


@dataclass(frozen=True, slots=True, order=True)
class Flaw:
    """One fault of one file."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {without_userinfo(' '.join(self.text.split()))}"


class ConfigError(Exception):
    """The configuration cannot be used; carries every fault found, one a line when printed."""

    def __init__(self, flaws: Iterable[Flaw]) -> None:
        self.flaws = tuple(sorted(flaws))
        super().__init__(self.flaws)

    def __str__(self) -> str:
        return "\n".join(map(str, self.flaws))


class Flaws:
    """Gathers faults; the same fault, met twice through an alias, counts once."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Flaw, None] = {}

    def add(self, place: Place, text: str) -> None:
        """Note a fault at a node; the node's path in the file is put before the text."""
        self.extend((Flaw(place.file, place.line, f"{place.where}: {text}" if place.where else text),))

    def extend(self, flaws: Iterable[Flaw]) -> None:
        """Take over faults that were found elsewhere."""
        for flaw in flaws:
            if self.full:
                return
            self._found[flaw] = None

    @property
    def full(self) -> bool:
        """True when nobody would read further faults."""
        return len(self._found) >= MOST_FLAWS

    def raise_if_any(self) -> None:
        """Raise one ConfigError with everything gathered, if anything was."""
        if self._found:
            raise ConfigError(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Flaw]:
        return iter(tuple(self._found))


def quote(text: str, longest: int = _LONGEST_QUOTE) -> str:
    """Text from a file as it may stand in a one-line message: quoted, escaped, cut."""
    text = without_userinfo(text)
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in json.dumps(cut, ensure_ascii=False))


def name(text: str) -> str:
    """A key as it may stand in a one-line message."""
    return f"`{quote(text)[1:-1]}`"
