"""The segments in a folder, and what is in one, as far as it can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tailrace.proxy.ledger.chain import Header, Line, begin, header_of, line_of

FOLDER = "ledger"
_NAME = re.compile(r"([0-9]{8,})\.log")


def path_of(folder: Path, segment: int) -> Path:
    """Where a segment lies."""
    return folder / f"{segment:08d}.log"


def numbers(folder: Path) -> list[int]:
    """The numbers of the segments that are there, in order."""
    if not folder.is_dir():
        return []
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def name_of(folder: Path) -> str:
    """The ledger whose segments lie in a folder, by the last header that can be read; empty where there is none."""
    for segment in reversed(numbers(folder)):
        with path_of(folder, segment).open("rb") as file:
            header = header_of(file.readline().rstrip(b"\n"))
        if header is not None:
            return header.ledger
    return ""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a segment holds together."""

    header: Header | None
    records: int
    hash: str
    batch: int
    end: int
    size: int
    last_number: int
    last_hash: str
    """What the last readable line bears, wherever it stands."""

    torn: bool
    """Whether what follows `end` is no more than the last batch, not written out."""

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong in it."""
        return self.header is not None and self.end == self.size


def reach(content: bytes) -> Reached:
    """Follow a segment's chain from its header to the first line that does not hold, or its end."""
    first, newline, _ = content.partition(b"\n")
    header = header_of(first) if newline else None
    mark, records, batch = begin(first), 0, 0
    end = len(first) + 1
    for line, stop in _lines(content, end) if header is not None else ():
        if line is None or line.number != records + 1 or not line.follows(mark):
            break
        mark, records, batch, end = line.hash, line.number, line.batch, stop
    rest = [line for line, _ in _lines(content, end) if line is not None]
    later = {line.batch for line in rest if line.text.endswith(b"}")}
    last = (rest[-1].number, rest[-1].hash) if rest else (records, mark)
    torn = header is not None and len(later) <= 1 and later <= {batch, batch + 1}
    return Reached(header, records, mark, batch, end, len(content), *last, torn=torn)


def _lines(content: bytes, at: int) -> Iterator[tuple[Line | None, int]]:
    """Each line from a place on, with the place behind it; None for what is no line, such as a last one without end."""
    while at < len(content):
        stop = content.find(b"\n", at)
        if stop < 0:
            yield None, len(content)
            return
        yield line_of(content[at:stop]), stop + 1
        at = stop + 1


def lines_from(path: Path, offset: int, most: int) -> tuple[list[Line], int]:
    """Whole lines of a segment from a place on, `most` bytes of them at most, and the place behind the last.

    At 0 the header is passed over. A line that cannot be read ends it.
    """
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read(most)
    at = content.find(b"\n") + 1 if offset == 0 else 0
    found: list[Line] = []
    for line, end in _lines(content, at):
        if line is None:
            break
        found.append(line)
        at = end
    return found, offset + at
