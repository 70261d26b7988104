"""One coarse clock and one timer for every connection of a process.

A timer object for each of ten thousand streams, re-armed on every token, would cost more than relaying the token. So a
connection only notes `clock.now` when something happens, and is looked at a few times a second.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

log: Final = logging.getLogger("tailrace")
TICK: Final = 0.05
LANES: Final = 4


class Clock:
    """Monotonic seconds, at most one tick old; read it as an attribute."""

    __slots__ = ("now",)

    def __init__(self, now: float = 0.0) -> None:
        self.now = now


class Watched(Protocol):
    """What a sweep looks at."""

    def visit(self, now: float) -> None:
        """Act on what is overdue; called about every TICK * LANES seconds."""


class Sweep:
    """Visits everything that was added, a quarter of it every tick; limits are therefore kept within 0.25 s."""

    __slots__ = ("_handle", "_lane", "_lanes", "_loop", "_next", "clock")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.clock = Clock(loop.time())
        self._lanes: tuple[set[Watched], ...] = tuple(set() for _ in range(LANES))
        self._lane = 0
        self._next = 0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin ticking."""
        self._handle = self._loop.call_later(TICK, self._tick)

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
        self.clock.now = now = self._loop.time()
        self._handle = self._loop.call_later(TICK, self._tick)
        self._lane = (self._lane + 1) % LANES
        for watched in tuple(self._lanes[self._lane]):
            try:
                watched.visit(now)
            except Exception:
                log.exception("one of the connections could not be looked at")  # the others still are
