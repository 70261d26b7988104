"""One connection to a worker: requests out, answers in, one exchange at a time.

A connection goes back to its pool only when the answer ended exactly where its framing said, with the request wholly
sent and nothing behind it; in every other case it is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from tailrace.proxy import wire
from tailrace.proxy.fault import INTERNAL, Fault, bad_answer, connection_lost, fault_of
from tailrace.proxy.wire import WireError

if TYPE_CHECKING:
    from tailrace.proxy.pool import ConnectionPool
    from tailrace.proxy.sink import Sink
    from tailrace.proxy.stride import Stride
    from tailrace.proxy.sweep import Clock, Watched

_size_of: Final = wire.SIZES.get
log: Final = logging.getLogger("tailrace")
STALE: Final = 0.25
HOLD_CHUNK: Final = 16 * 1024
"""How much of a chunk that has not wholly arrived is kept back; a larger one is passed on in pieces."""


class UpstreamConnection:
    """A connection of one pool; `sink` is None while it rests there.

    `stride` is the sink's where plugins' code may run as bytes come, which has to see its own call's context.
    `manner` says what is unusual about the answer being waited for: BODILESS, one to HEAD, ends with its head whatever
    that says; of a VERBATIM one every header is of use.
    """

    __slots__ = (
        "_buffer",
        "_keep_alive",
        "_lane",
        "_left",
        "_receive",
        "clock",
        "closed",
        "got_bytes",
        "manner",
        "opened",
        "pool",
        "rested",
        "sink",
        "stride",
        "touched",
        "transport",
    )

    def __init__(self, pool: ConnectionPool, clock: Clock) -> None:
        self.pool = pool
        self.clock = clock
        self.sink: Sink | None = None
        self.stride: Stride | None = None
        self.transport: asyncio.Transport | None = None
        self.touched = self.opened = clock.now
        self.rested = False
        self.closed = False
        self.got_bytes = False
        self.manner = 0
        self._buffer = b""
        self._left = 0
        self._keep_alive = False
        self._receive: Callable[[Sink, bytes], None] = self._in_head
        self._lane: set[Watched] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._lane = self.pool.sweep.add(self)
        self.pool.open += 1

    def send(self, sink: Sink, head: bytes, body: bytes) -> None:
        """Start an exchange."""
        transport = self.transport
        assert transport is not None
        self.sink = sink
        self.touched = self.clock.now
        self.got_bytes = False
        self._receive = self._in_head
        if len(body) > 16384:
            transport.writelines((head, body))
        else:
            transport.write(head + body)

    def data_received(self, data: bytes) -> None:
        sink = self.sink
        if sink is None:
            # Bytes that nobody asked for: nobody may see them.
            self.close()
            return
        self.touched = self.clock.now
        try:
            if self.stride is None:
                self._receive(sink, data)
            else:
                self.stride.within(self._receive, sink, data)
        except WireError as error:
            self._fail(bad_answer(str(error)))
        except Exception as error:
            # Only plugins' code can raise here: their taps and policies run as the bytes come.
            fault = fault_of(error)
            if fault is INTERNAL:
                log.exception("a plugin failed on the answer of a worker")
            self._fail(fault)

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
            self._receive = self._in_chunks
        elif length == wire.UNTIL_CLOSE:
            self._receive = self._in_rest
        else:
            self._receive = self._in_length
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

    def _in_rest(self, sink: Sink, data: bytes) -> None:
        sink.on_data(data)

    def _in_chunks(self, sink: Sink, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        else:
            # The usual read of a stream is exactly one chunk.
            line_end = data.find(b"\r\n")
            size = _size_of(data[:line_end])
            if size is not None and line_end + 4 + size == len(data) and data.endswith(b"\r\n"):
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
            self._receive = self._in_trailers
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
        self.sink = self.stride = None
        self.rested = True
        transport = self.transport
        if self._keep_alive and transport is not None and not transport.get_write_buffer_size():
            if not transport.is_reading():
                transport.resume_reading()
            self.pool.rest(self)
        else:
            self.close()
        sink.on_end()

    def _fail(self, fault: Fault) -> None:
        sink, self.sink = self.sink, None
        self.close()
        if sink is not None:
            self._tell(sink.on_fault, fault)

    def _tell(self, heard: Callable[..., None], *args: object) -> None:
        if self.stride is None:
            heard(*args)
        else:
            self.stride.within(heard, *args)

    def release(self) -> None:
        """Give up the running exchange: its sink hears nothing more and the connection is closed."""
        self.sink = None
        self.close()

    def close(self) -> None:
        """Close at once; bytes not yet sent are dropped, so that the worker sees the end immediately."""
        self.closed = True
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        """A body that waits in the transport is held within `body_memory` already."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is None:
            return
        if self._lane is not None:
            self._lane.discard(self)
        self.closed = True
        self.pool.lost(self)
        self.transport = None
        sink, self.sink = self.sink, None
        if sink is None:
            return
        if exc is None and self.got_bytes and self._receive == self._in_rest:
            self._tell(sink.on_end)
        else:
            # A connection that had rested and is lost at once was closed before the request came; one that is lost
            # later took the request with it.
            stale = self.rested and not self.got_bytes and self.clock.now - self.touched <= STALE
            self._tell(sink.on_fault, connection_lost(sent=not stale))

    def visit(self, now: float) -> None:
        quiet = now - self.touched
        if self.sink is not None:
            self._tell(self.sink.on_quiet, quiet, now)
        elif quiet > self.pool.idle_limit or now - self.opened > self.pool.max_age:
            self.close()
