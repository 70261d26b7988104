"""Server-sent events as values: bytes in, whole events out. No I/O, no JSON unless asked.

The relay itself never needs this file for a plain stream; taps, the commit rule and tests do.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

# An event ends at an empty line; a line ends at CRLF, LF or CR. A line feed that arrives after its CR already
# closed the event is an empty line at the start of the next one, which the grammar ignores.
_END: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_LINE: Final = re.compile(rb"\r\n|\n|\r")
_CR: Final = ord("\r")  # a number: bytes are looked for only after they have failed to be read as one
BOM: Final = b"\xef\xbb\xbf"
_ENDS: Final = (b"\n\n", b"\n\r\n", b"\r\r", b"\n\r", b"\r\r\n")


def ends_event(data: bytes) -> bool:
    """Whether the end of `data` is that of an event, so that another one may begin behind it."""
    return data.endswith(_ENDS)


def ends_within(data: bytes) -> bool:
    """Whether an event ends somewhere in `data`."""
    return data.find(b"\n\n") >= 0 or (_CR in data and _END.search(data) is not None)


class Event:
    """One event with the exact bytes it came in, terminator included."""

    __slots__ = ("_data", "_json", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._data: bytes | None = None
        self._json: Any = None

    @property
    def data(self) -> bytes:
        """The payload: all `data` lines, at most one space stripped from each, joined with LF."""
        if self._data is None:
            self._data = _payload(self.raw)
        return self._data

    @property
    def name(self) -> bytes:
        """The `event` field, empty where there is none."""
        for line in _LINE.split(self.raw.removeprefix(BOM)):
            if line.startswith(b"event:"):
                return line[6:].strip()
        return b""

    def json(self) -> Any:
        """The payload as JSON, or None where it is none."""
        if self._json is None:
            try:
                self._json = orjson.loads(self.data)
            except orjson.JSONDecodeError:
                return None
        return self._json

    def replaced(self, payload: bytes) -> Event:
        """An event of the same name with other data."""
        name = self.name
        head = b"event: " + name + b"\n" if name else b""
        return Event(head + b"data: " + payload + b"\n\n")


def _payload(raw: bytes) -> bytes:
    if raw.startswith(b"data: ") and raw.find(b"\n") >= len(raw) - 2 and _CR not in raw:
        return raw[6:].rstrip(b"\n")  # the one shape that engines send nearly always
    lines = []
    for line in _LINE.split(raw.removeprefix(BOM)):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line.startswith(b" ", 5) else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines)


class Splitter:
    """Cuts a stream of bytes into whole events, however the bytes arrive.

    `rest` is the open event so far. An event above `limit` bytes is given up as one piece when it passes it,
    so that memory stays bounded; its remainder follows as a further piece.
    """

    __slots__ = ("_limit", "_scan", "rest")

    def __init__(self, limit: int = 1 << 20) -> None:
        self.rest = b""
        self._limit = limit
        self._scan = 0

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes."""
        if not self.rest and data.endswith(b"\n\n") and _CR not in data:
            return [Event(piece + b"\n\n") for piece in data[:-2].split(b"\n\n")]
        buffer = self.rest + data
        events = []
        start = 0
        scan = self._scan
        while match := _END.search(buffer, scan):
            start_of_next = match.end()
            events.append(Event(buffer[start:start_of_next]))
            start = scan = start_of_next
        rest = buffer[start:]
        if len(rest) > self._limit:
            events.append(Event(rest))
            rest = b""
        self.rest = rest
        self._scan = max(0, len(rest) - 3)
        return events

    def finish(self) -> list[Event]:
        """The open event at the end of the stream: an unterminated one is a piece of its own."""
        rest, self.rest, self._scan = self.rest, b"", 0
        return [Event(rest)] if rest else []
