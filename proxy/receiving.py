"""The answer of a worker as it is received: which part of it comes now, and who hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.proxy import wire
from tailrace.proxy.wire import WireError

if TYPE_CHECKING:
    from tailrace.proxy.sink import Sink

# What is received now.
HEAD: Final = 0
LENGTH: Final = 1
CHUNKS: Final = 2
REST: Final = 3
TRAILERS: Final = 4
HOLD_CHUNK: Final = 16 * 1024
"""How much of a chunk that has not wholly arrived is kept back; a larger one is passed on in pieces."""


def _size_lines() -> list[bytes]:
    lines = [bytes(8192)] * 8192  # no chunk of such a length begins with that
    for size in range(1, 8184):
        line = b"%x\r\n" % size
        lines[len(line) + size + 2] = line
    return lines


# The size line of a chunk, by the length of the whole chunk with its framing.
_LINES: Final[list[bytes]] = _size_lines()


class Receiving:
    """The receiving side of a connection to a worker; `sink` is None while no answer is waited for.

    `manner` says what is unusual about the answer being waited for: BODILESS, one to HEAD, ends with its head whatever
    that says; of a VERBATIM one every header is of use.
    """

    __slots__ = ("_buffer", "_keep_alive", "_left", "_state", "got_bytes", "manner", "sink")

    def __init__(self) -> None:
        self.sink: Sink | None = None
        self.got_bytes = False
        self.manner = 0
        self._buffer = b""
        self._left = 0
        self._keep_alive = False
        self._state = HEAD

    def _receive(self, sink: Sink, data: bytes) -> None:
        state = self._state
        if state == CHUNKS:
            self._in_chunks(sink, data)
        elif state == HEAD:
            self._in_head(sink, data)
        elif state == LENGTH:
            self._in_length(sink, data)
        elif state == REST:
            sink.on_data(data)
        else:
            self._in_trailers(sink, data)

    # One method for each state of the answer being received.

    def _in_head(self, sink: Sink, data: bytes) -> None:
        self.got_bytes = True
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        start = 0
        while True:
            end = data.find(b"\r\n\r\n", start)
            if end < 0:
                if len(data) - start > wire.MAX_HEAD:
                    raise WireError("its head is too large")
                self._buffer = data[start:]
                return
            head = wire.parse_head(data[start:end])
            if head.status >= 200:
                break
            if head.status == 101:
                raise WireError("it switches protocols")
            start = end + 4
        rest = data[end + 4 :]
        length = head.length
        if self.manner:
            if self.manner & wire.VERBATIM:
                head.headers = wire.all_headers(data[start:end])
            if self.manner & wire.BODILESS:
                length = 0
            self.manner = 0
        self._left = length
        self._keep_alive = head.keep_alive
        if length == wire.CHUNKED:
            self._state = CHUNKS
        elif length == wire.UNTIL_CLOSE:
            self._state = REST
        else:
            self._state = LENGTH
        sink.on_head(head)
        if (rest or length == 0) and self.sink is not None:
            self._receive(self.sink, rest)

    def _in_length(self, sink: Sink, data: bytes) -> None:
        left = self._left = self._left - len(data)
        if left > 0:
            sink.on_data(data)
            return
        if left < 0:
            self._keep_alive = False
            data = data[:left]
        if data:
            sink.on_data(data)
        # Another sink may have taken over meanwhile: at the commit, the relay does.
        if self.sink is not None:
            self._finish(self.sink)

    def _in_chunks(self, sink: Sink, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        else:
            # The usual read of a stream is exactly one chunk, whose size line follows from its length.
            total = len(data)
            if total < len(_LINES) and data.startswith(_LINES[total]) and data.endswith(b"\r\n"):
                sink.on_chunks(data, 1)
                return
        at, count, end = wire.walk_chunks(data)
        if end == wire.EXTENDED:
            data = wire.without_extensions(data)
            at, count, end = wire.walk_chunks(data)
        if at == len(data):
            sink.on_chunks(data, count)
            return
        if at:
            sink.on_chunks(data[:at], count)
        if end >= 0:
            self._state = TRAILERS
            if self.sink is not None:
                self._in_trailers(self.sink, data[end:])
            return
        self._buffer = data[at:]
        if len(self._buffer) > HOLD_CHUNK and self.sink is not None:
            self._split(self.sink)

    def _split(self, sink: Sink) -> None:
        """Pass on what is there of a large chunk, as a chunk of its own."""
        size, start = wire.first_size(self._buffer)
        there = len(self._buffer) - start
        if size < 0 or there < 1 or there >= size:
            return
        piece = self._buffer[start:]
        self._buffer = b"%x\r\n" % (size - there)
        sink.on_chunks(wire.frame(piece), 1)

    def _in_trailers(self, sink: Sink, data: bytes) -> None:
        """Behind the last chunk: trailers are dropped, an empty line ends the answer."""
        data = self._buffer + data
        self._buffer = b""
        while True:
            end = data.find(b"\r\n")
            if end < 0:
                if len(data) > wire.MAX_HEAD:
                    raise WireError("its trailers are too large")
                self._buffer = data
                return
            line, data = data[:end], data[end + 2 :]
            if not line:
                break
        if data:
            self._keep_alive = False
        self._finish(sink)

    def _finish(self, sink: Sink) -> None:
        """The answer ended where its framing said."""
        raise NotImplementedError
