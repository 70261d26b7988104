"""The connections that one process keeps to one worker.

Rules: the most recently used connection first; none that rested longer than `idle_limit` (below the 5 s after which
uvicorn closes idle connections) or lives longer than `max_age` (names move); one spare kept open while there is
traffic, so that a connection set-up is off the path of a request; no upper bound, because a bound would make one hung
worker's calls wait for each other.
"""

from __future__ import annotations

import asyncio
import contextvars
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from tailrace.proxy.fault import Fault, connect_failed
from tailrace.proxy.upstream import UpstreamConnection

if TYPE_CHECKING:
    from tailrace.proxy.address import Address
    from tailrace.proxy.sweep import Sweep

_BUSY: Final = 30.0


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How long connections live, and how long one may take to open; seconds."""

    idle: float = 4.0
    max_age: float = 300.0
    connect: float = 1.0


class ConnectionPool:
    """Connections of one worker; `take` or, where none rests, `connect`."""

    __slots__ = (
        "_closed",
        "_context",
        "_idle",
        "_limits",
        "_loop",
        "_opening",
        "_spare",
        "_spare_due",
        "_tasks",
        "_tls",
        "address",
        "connect_limit",
        "idle_limit",
        "max_age",
        "open",
        "sweep",
    )

    def __init__(
        self, address: Address, tls: Callable[[], ssl.SSLContext] | None, sweep: Sweep, limits: PoolLimits
    ) -> None:
        self.address = address
        self.sweep = sweep
        self.idle_limit = limits.idle
        self.max_age = limits.max_age
        self.connect_limit = limits.connect
        self.open = 0
        self._limits = limits
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        # A connection serves many calls: it must not live in the context of the one that opened it.
        self._context = contextvars.copy_context()
        self._idle: list[UpstreamConnection] = []
        self._opening = 0
        self._spare: asyncio.Task[None] | None = None
        self._spare_due = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def take(self) -> UpstreamConnection | None:
        """A resting connection that may be used, or None; the caller owns it until it rests again."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.closed:
                continue
            if self.sweep.clock.now - connection.touched > self.idle_limit:
                connection.close()
                continue
            if not idle and not self._opening:
                self._open_spare()
            return connection
        return None

    def rest(self, connection: UpstreamConnection) -> None:
        """Take back a clean connection."""
        if self._closed or self.sweep.clock.now - connection.opened > self.max_age:
            connection.close()
        else:
            self._idle.append(connection)

    def lost(self, connection: UpstreamConnection) -> None:
        """A connection of this pool has ended."""
        self.open -= 1
        if connection.sink is None and connection in self._idle:
            self._idle.remove(connection)

    def connect(
        self, done: Callable[[UpstreamConnection], None], failed: Callable[[Fault], None]
    ) -> asyncio.Task[None]:
        """Open a connection; exactly one of the two is called, unless the returned task is cancelled."""
        task = self._loop.create_task(self._connect(done, failed), context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """Close what rests; connections in use, or wanted by a call, are closed when they come back."""
        self._closed = True
        if self._spare is not None:
            self._spare.cancel()
        for connection in tuple(self._idle):
            connection.close()

    @property
    def resting(self) -> int:
        """How many connections wait for use."""
        return len(self._idle)

    async def _connect(self, done: Callable[[UpstreamConnection], None], failed: Callable[[Fault], None]) -> None:
        try:
            async with asyncio.timeout(self.connect_limit):
                connection = await self._open()
        except TimeoutError:
            failed(connect_failed(f"no answer within {self.connect_limit:g} s"))
        except (OSError, ssl.SSLError) as error:
            failed(connect_failed(_why(error)))
        else:
            # What accepts for a dead worker, such as a port forwarder, closes at once.
            if connection.closed:
                failed(connect_failed("closed as soon as it was open"))
            else:
                done(connection)

    async def _open(self) -> UpstreamConnection:
        connection = UpstreamConnection(self, self.sweep.clock)
        try:
            await self.address.open(
                self._loop, lambda: cast("asyncio.Protocol", connection), self._tls() if self._tls else None
            )
        except BaseException:
            # Cancelled in the moment of success: uvloop closes the transport without a word to its protocol.
            connection.connection_lost(None)
            raise
        return connection

    def _open_spare(self) -> None:
        now = self.sweep.clock.now
        if now < self._spare_due:
            return
        self._opening += 1
        self._spare = self.connect(self._spare_opened, self._spare_failed)

    def _spare_opened(self, connection: UpstreamConnection) -> None:
        self._opening -= 1
        connection.touched = self.sweep.clock.now
        if self._closed:
            connection.close()
            return
        # It may go stale like one that was used before.
        connection.rested = True
        # Below the others: used only when they are all taken.
        self._idle.insert(0, connection)

    def _spare_failed(self, _fault: Fault) -> None:
        self._opening -= 1
        self._spare_due = self.sweep.clock.now + 1.0


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    return error.strerror or type(error).__name__
