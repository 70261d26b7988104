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

from tailrace.proxy.awake import awake
from tailrace.proxy.fault import Fault, connect_failed
from tailrace.proxy.opening import Opening
from tailrace.proxy.tcp import round_trip
from tailrace.proxy.upstream import UpstreamConnection

if TYPE_CHECKING:
    from tailrace.proxy.address import Address
    from tailrace.proxy.sink import Sink
    from tailrace.proxy.sweep import Sweep

_KNOCK: Final = 1.0
"""Seconds after which one who knocks goes away."""


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
        "broken",
        "busy",
        "connect_limit",
        "idle_limit",
        "max_age",
        "open",
        "openings",
        "reached",
        "round_trip",
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
        self.round_trip = 0.0
        """Seconds to the worker and back, by what was opened or measured last; 0 where nobody knows."""
        self.reached = 0.0
        """The second in which somebody last answered an attempt at a connection."""
        self.busy: set[UpstreamConnection] = set()
        """Those with an exchange under way."""
        self.openings: set[Opening] = set()
        """Those that are on their way."""
        self.broken: Callable[[Sink | None], None] | None = None
        """Told of exchanges whose connection breaks, and with None of calls that get none."""
        self._limits = limits
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        # A connection serves many calls: it must not live in the context of the one that opened it.
        self._context = contextvars.copy_context()
        self._idle: list[UpstreamConnection] = []
        self._opening = 0
        self._spare: asyncio.Task[None] | None = None
        self._spare_due = 0.0
        self._tasks: dict[asyncio.Task[None], Callable[[Fault, bool], None] | None] = {}
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
        self.busy.discard(connection)
        if connection.sink is None and connection in self._idle:
            self._idle.remove(connection)

    def connect(
        self,
        done: Callable[[UpstreamConnection], None],
        failed: Callable[[Fault], None],
        doubted: Callable[[Fault, bool], None] | None = None,
    ) -> asyncio.Task[None]:
        """Open a connection; exactly one of the first two is called, unless the returned task is cancelled.

        A call gives `doubted`, as a sink has `on_doubt`, for the time until then.
        """
        task = self._loop.create_task(self._connect(done, failed, doubted is not None), context=self._context)
        self._tasks[task] = doubted
        task.add_done_callback(self._tasks.pop)
        return task

    @property
    def connecting(self) -> list[Callable[[Fault, bool], None]]:
        """What to tell the calls that wait for a connection."""
        return [doubted for doubted in self._tasks.values() if doubted is not None]

    def measure(self) -> None:
        """Ask one open connection how far it is to the worker: it may have been opened in a bad moment."""
        connection = next(iter(self.busy), None) or (self._idle[-1] if self._idle else None)
        if connection is not None and connection.transport is not None:
            found = round_trip(connection.transport.get_extra_info("socket"))
            if found:
                self.round_trip = found

    def knock(self) -> None:
        """See whether anybody answers an attempt at a connection, which is given up again: `reached` will tell.

        One that is refused counts as a call that finds nobody.
        """
        if not self._closed:
            task = self._loop.create_task(self._knock(), context=self._context)
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    def close(self) -> None:
        """Close what rests; connections in use, or wanted by a call, are closed when they come back."""
        self._closed = True
        if self._spare is not None:
            self._spare.cancel()
        for connection in tuple(self._idle):
            connection.close()

    def reopen(self) -> None:
        """Keep connections again."""
        if self._closed:
            self._closed, self._opening = False, 0

    @property
    def resting(self) -> int:
        """How many connections wait for use."""
        return len(self._idle)

    @property
    def rested(self) -> float:
        """The second in which the last of them came to rest, 0 where none waits."""
        return self._idle[-1].touched if self._idle else 0.0

    async def _connect(
        self, done: Callable[[UpstreamConnection], None], failed: Callable[[Fault], None], for_a_call: bool
    ) -> None:
        gone = True
        try:
            async with awake(self.connect_limit):
                connection = await self._open()
        except TimeoutError:
            why = f"no answer within {self.connect_limit:g} s"
        except (OSError, ssl.SSLError) as error:
            why, gone = _why(error), not isinstance(error, ssl.SSLError)
        else:
            if not connection.closed:
                done(connection)
                return
            # What accepts for a dead worker, such as a port forwarder, closes at once.
            why = "closed as soon as it was open"
        if gone and for_a_call and self.broken is not None:
            self.broken(None)
        failed(connect_failed(why))

    async def _open(self) -> UpstreamConnection:
        connection = UpstreamConnection(self, self.sweep.clock)
        opening = Opening()
        self.openings.add(opening)
        try:
            await self.address.open(
                self._loop, lambda: cast("asyncio.Protocol", connection), self._tls() if self._tls else None, opening
            )
        except BaseException:
            # Cancelled in the moment of success: uvloop closes the transport without a word to its protocol.
            connection.connection_lost(None)
            raise
        finally:
            self.openings.discard(opening)
        return connection

    async def _knock(self) -> None:
        opening = Opening()
        self.openings.add(opening)
        try:
            async with awake(_KNOCK):
                await self.address.knock(self._loop, opening)
        except ConnectionRefusedError:
            if self.broken is not None:
                self.broken(None)
        except OSError:
            # Whoever looks at `openings` has seen as much.
            return
        else:
            self.reached = self.sweep.clock.now
        finally:
            self.openings.discard(opening)

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
