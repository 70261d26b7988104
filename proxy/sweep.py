"""One coarse clock and one timer for every connection of a process.

A timer object for each of ten thousand streams, re-armed on every token, would cost more than relaying the token. So a
connection only notes `clock.now` when something happens, and is looked at a few times a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

log: Final = logging.getLogger("tailrace")
TICK: Final = 0.05
LANES: Final = 4
LATE: Final = TICK
"""Seconds by which a tick has to be late for a standstill of the loop."""


class Clock:
    """Monotonic seconds, at most one tick old but in a standstill of the loop; read it as an attribute."""

    __slots__ = ("_stood_at", "_woke_at", "now")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._stood_at = self._woke_at = -1.0

    def wake(self, now: float) -> None:
        """The loop stood still until now."""
        self._stood_at, self._woke_at = self.now, now

    def latest(self, noted: float) -> float:
        """The latest that something may have come that was noted then: in a standstill this clock stands still too."""
        return self._woke_at if noted == self._stood_at else noted


class Watched(Protocol):
    """What a sweep looks at."""

    def visit(self, now: float) -> None:
        """Act on what is overdue; called about every TICK * LANES seconds."""


class Sweep:
    """Visits everything that was added, a quarter of it every tick; limits are therefore kept within 0.25 s.

    A tick that comes after a standstill of the loop visits nothing: what was sent meanwhile has yet to be read.
    """

    __slots__ = ("_handle", "_lane", "_lanes", "_next", "_stood", "clock", "loop", "ticking")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = Clock(loop.time())
        self._lanes: tuple[set[Watched], ...] = tuple(set() for _ in range(LANES))
        self._lane = 0
        self._next = 0
        self._handle: asyncio.TimerHandle | None = None
        self._stood = False
        """Whether the last tick visited nothing."""
        self.ticking: list[Callable[[float], None]] = []
        """Called at every tick, as soon as the clock says it."""

    def start(self) -> None:
        """Begin ticking."""
        self.clock.now = self.loop.time()
        self._handle = self.loop.call_later(TICK, self._tick)

    def stop(self) -> None:
        """Stop ticking."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def add(self, watched: Watched) -> set[Watched]:
        """Visit `watched` from now on; discard it from the returned set to end that."""
        self._next = (self._next + 1) % LANES
        lane = self._lanes[self._next]
        lane.add(watched)
        return lane

    def _tick(self) -> None:
        now = self.loop.time()
        late = now - self.clock.now > TICK + LATE
        if late:
            self.clock.wake(now)
        self.clock.now = now
        self._handle = self.loop.call_later(TICK, self._tick)
        for tick in self.ticking:
            try:
                tick(now)
            except Exception:
                log.exception("what goes by time could not be done")
        # Sockets are read between two ticks, so that one will do, and a loop that is always late still looks.
        self._stood = late and not self._stood
        if self._stood:
            return
        self._lane = (self._lane + 1) % LANES
        for watched in tuple(self._lanes[self._lane]):
            try:
                watched.visit(now)
            except Exception:
                log.exception("one of the connections could not be looked at")  # the others still are
