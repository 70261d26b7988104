"""One connection to a worker: requests out, answers in, one exchange at a time.

A connection goes back to its pool only when the answer ended exactly where its framing said, with the request wholly
sent and nothing behind it; in every other case it is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from tailrace.proxy.fault import FAILURES, Failed, Fault, Reject, bad_answer, connection_lost, fault_of
from tailrace.proxy.receiving import CHUNKS, HEAD, REST, Receiving
from tailrace.proxy.stale import LATEST, unread
from tailrace.proxy.sweep import TICK
from tailrace.proxy.tcp import acknowledged, round_trip
from tailrace.proxy.wire import WireError

if TYPE_CHECKING:
    from tailrace.proxy.pool import ConnectionPool
    from tailrace.proxy.sink import Sink
    from tailrace.proxy.stride import Stride
    from tailrace.proxy.sweep import Clock, Watched

log: Final = logging.getLogger("tailrace")


class UpstreamConnection(Receiving):
    """A connection of one pool.

    `stride` is the sink's where plugins' code may run as bytes come, which has to see its own call's context.
    """

    __slots__ = (
        "_before",
        "_lane",
        "_round_trip",
        "_settled",
        "_written",
        "clock",
        "closed",
        "opened",
        "pool",
        "rested",
        "stride",
        "touched",
        "transport",
    )

    def __init__(self, pool: ConnectionPool, clock: Clock) -> None:
        super().__init__()
        self.pool = pool
        self.clock = clock
        self.stride: Stride | None = None
        self.transport: asyncio.Transport | None = None
        self.touched = self.opened = clock.now
        self.rested = False
        self.closed = False
        self._before = self._written = self._settled = 0
        self._round_trip = 0.0
        self._lane: set[Watched] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._round_trip = self.pool.round_trip = round_trip(self.transport.get_extra_info("socket"))
        self.pool.reached = self.clock.now
        self._lane = self.pool.sweep.add(self)
        self.pool.open += 1

    def send(self, sink: Sink, head: bytes, body: bytes) -> None:
        """Start an exchange."""
        transport = self.transport
        assert transport is not None
        self.sink = sink
        self.pool.busy.add(self)
        self.touched = self.clock.now
        self.got_bytes = False
        self._state = HEAD
        self._before = written = self._written
        self._written = written + len(head) + len(body)
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
                if self._state == CHUNKS:
                    self._in_chunks(sink, data)
                else:
                    self._receive(sink, data)
            else:
                self.stride.within(self._receive, sink, data)
        except WireError as wrong:
            # Not by the same name as below: a compiler gives a name one type.
            self._fail(bad_answer(str(wrong)))
        except FAILURES as error:
            # Plugins' taps and policies run as the bytes come; what is raised for them has been logged.
            if not isinstance(error, Reject | Failed):
                call = getattr(sink, "call", None)
                log.exception(
                    "the answer of worker %s to request %s could not be handled",
                    self.pool.address.shown,
                    "of the gateway's own" if call is None else call.id,
                )
            self._fail(fault_of(error))

    # Whether a request has arrived, of whose answer nothing has come: asked by whoever watches the worker.

    @property
    def unsettled(self) -> bool:
        """Whether that is of interest, and not known yet."""
        return self.sink is not None and not self.got_bytes and self._settled != self._written

    @property
    def sent(self) -> float:
        """The second in which it was sent, or one soon behind it."""
        sent_ns = getattr(self.sink, "sent_ns", 0)
        return sent_ns * 1e-9 if sent_ns else self.touched + TICK

    def acknowledged(self) -> tuple[bool, float] | None:
        """What the kernel says of it: see `tcp.acknowledged`."""
        transport = self.transport
        return None if transport is None else acknowledged(transport.get_extra_info("socket"))

    def settle(self) -> None:
        """It has arrived."""
        self._settled = self._written

    def _finish(self, sink: Sink) -> None:
        self.sink = self.stride = None
        self.pool.busy.discard(self)
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

    def doubt(self, fault: Fault, lost: bool) -> None:
        """Tell whoever the answer is for that this worker may be gone."""
        if self.sink is not None:
            self._tell(self.sink.on_doubt, fault, lost)

    def part(self, fault: Fault) -> None:
        """End the running exchange with a fault."""
        self._fail(fault)

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
        transport, self.transport = self.transport, None
        sink, self.sink = self.sink, None
        if sink is None:
            return
        if exc is None and self.got_bytes and self._state == REST:
            self._tell(sink.on_end)
        else:
            stale = self.rested and not self.got_bytes and self.clock.now - self.touched <= LATEST
            if stale:
                stale = unread(transport, exc, self._before, getattr(sink, "sent_ns", 0), self._round_trip)
            if not stale and self.pool.broken is not None:
                self.pool.broken(sink)
            self._tell(sink.on_fault, connection_lost(sent=not stale))

    def visit(self, now: float) -> None:
        if self.sink is not None:
            self._tell(self.sink.on_quiet, now - self.clock.latest(self.touched), now)
        elif now - self.touched > self.pool.idle_limit or now - self.opened > self.pool.max_age:
            self.close()
