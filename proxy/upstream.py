"""One connection to a worker: requests out, heads and payload bytes in, one exchange at a time.

A connection goes back to its pool only when the answer ended exactly where its framing said, with the request wholly
sent and nothing behind it; in every other case it is closed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

import httptools

from tailrace.proxy.fault import Fault, bad_answer, connection_lost
from tailrace.proxy.head import HeaderList

if TYPE_CHECKING:
    from tailrace.proxy.pool import ConnectionPool
    from tailrace.proxy.sweep import Clock, Watched

MAX_HEAD = 64 * 1024
_BODYLESS = frozenset({204, 304})


class Sink(Protocol):
    """Whoever the answer of one exchange is for. After `on_end` or `on_fault` nothing more is called."""

    def on_head(self, status: int, headers: HeaderList) -> None:
        """The answer's head; header names are in lower case."""

    def on_data(self, data: bytes) -> None:
        """Payload bytes, framing removed: all that one read brought."""

    def on_end(self) -> None:
        """The answer ended where its framing said."""

    def on_fault(self, fault: Fault) -> None:
        """The exchange failed; the connection is closed."""

    def on_quiet(self, quiet: float, now: float) -> None:
        """Called a few times a second with the seconds since the last byte."""


class UpstreamConnection(asyncio.Protocol):
    """A connection of one pool; `sink` is None while it rests there."""

    __slots__ = (
        "_complete",
        "_head_size",
        "_headers",
        "_lane",
        "_parser",
        "_parts",
        "_status",
        "_until_close",
        "clock",
        "got_bytes",
        "opened",
        "pool",
        "served",
        "sink",
        "touched",
        "transport",
    )

    def __init__(self, pool: ConnectionPool, clock: Clock) -> None:
        self.pool = pool
        self.clock = clock
        self.sink: Sink | None = None
        self.transport: asyncio.Transport | None = None
        self.touched = self.opened = clock.now
        self.served = 0
        self.got_bytes = False
        self._parser = httptools.HttpResponseParser(self)
        self._headers: HeaderList = []
        self._parts: list[bytes] = []
        self._head_size = 0
        self._status = 0
        self._complete = False
        self._until_close = False
        self._lane: set[Watched] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._lane = self.pool.sweep.add(self)

    def send(self, sink: Sink, head: bytes, body: bytes) -> None:
        """Start an exchange."""
        transport = self.transport
        assert transport is not None
        self.sink = sink
        self.touched = self.clock.now
        self.got_bytes = self._complete = self._until_close = False
        self._head_size = 0
        if len(body) > 16384:
            transport.writelines((head, body))
        else:
            transport.write(head + body)

    def data_received(self, data: bytes) -> None:
        sink = self.sink
        if sink is None:
            self.close()
            return
        self.touched = self.clock.now
        self.got_bytes = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.sink is not None:
                self._fail(bad_answer(_parse_error(error)))
            return
        if self.sink is not sink:
            return
        parts = self._parts
        if parts:
            self._parts = []
            sink.on_data(parts[0] if len(parts) == 1 else b"".join(parts))
        elif not self._status:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self._fail(bad_answer("its head is too large"))
                return
        if self._complete and self.sink is sink:
            self._finish(sink)

    def _finish(self, sink: Sink) -> None:
        self.sink = None
        self._status = 0
        self.served += 1
        transport = self.transport
        if (
            self._parser.should_keep_alive()
            and not self._until_close
            and transport is not None
            and not transport.get_write_buffer_size()
        ):
            transport.resume_reading()
            self.pool.rest(self)
        else:
            self.close()
        sink.on_end()

    def _fail(self, fault: Fault) -> None:
        sink, self.sink = self.sink, None
        self.close()
        if sink is not None:
            sink.on_fault(fault)

    def release(self) -> None:
        """Give up the running exchange: its sink hears nothing more and the connection is closed."""
        self.sink = None
        self.close()

    def close(self) -> None:
        """Close at once; bytes not yet sent are dropped, so that the worker sees the end immediately."""
        if self.transport is not None:
            self.transport.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lane is not None:
            self._lane.discard(self)
        self.pool.lost(self)
        self.transport = None
        sink, self.sink = self.sink, None
        if sink is None:
            return
        if self._until_close and self._status and exc is None:
            sink.on_end()
            return
        sink.on_fault(connection_lost(sent=self.got_bytes or not self.served))

    def pause_writing(self) -> None:
        """Request bodies are whole in memory and counted there, so a slow worker holds up nobody."""

    def resume_writing(self) -> None:
        """See pause_writing."""

    def visit(self, now: float) -> None:
        quiet = now - self.touched
        if self.sink is not None:
            self.sink.on_quiet(quiet, now)
        elif quiet > self.pool.idle_limit or now - self.opened > self.pool.max_age:
            self.close()

    # What httptools calls while it is fed.

    def on_message_begin(self) -> None:
        if self._complete:
            # Bytes behind the end of the answer: nobody asked for them, and nobody may see them.
            raise httptools.HttpParserError("bytes after the end of the answer")
        self._headers = []
        self._status = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101:
                raise httptools.HttpParserError("an upgrade that nobody asked for")
            return
        if status > 599:
            raise httptools.HttpParserError("an impossible status")
        self._status = status
        headers = self._headers
        self._until_close = status not in _BODYLESS and not any(
            name == b"content-length" or name == b"transfer-encoding" for name, _ in headers
        )
        sink = self.sink
        if sink is not None:
            sink.on_head(status, headers)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._status:
            self._complete = True


def _parse_error(error: httptools.HttpParserError) -> str:
    cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
    return f"it is not valid HTTP ({cause})" if cause is not None else "it is not valid HTTP"
