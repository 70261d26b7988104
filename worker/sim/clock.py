"""Time as the simulated engine sees it, so that tests can hold it still."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that has been booked."""

    def cancel(self) -> None:
        """Forget the call; does nothing when it has been made."""


class Clock(Protocol):
    """Where the engine reads the time and books its wake-ups."""

    @property
    def resolution(self) -> float:
        """What is due within this many seconds may be done now."""

    def now(self) -> float:
        """Monotonic seconds."""

    def wall(self) -> float:
        """Seconds since the epoch, for `created` and `date`."""

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        """Book a call at a monotonic time; a past time means as soon as possible."""


class LoopClock:
    """Real time on the running event loop."""

    # uvloop's timers count whole milliseconds: a finer wish would spin until the millisecond is over.
    resolution = 0.001

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Monotonic seconds, read afresh: the loop's own time stands still during one iteration."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        """Book a call on the loop."""
        delay = when - time.monotonic()
        return self._loop.call_soon(call) if delay <= 0 else self._loop.call_later(delay, call)


class _ManualTimer:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class ManualClock:
    """Time that moves only in `advance`."""

    resolution = 0.0

    def __init__(self, now: float = 1000.0, wall: float = 1_795_964_400.0) -> None:
        self._now = now
        self._wall_offset = wall - now
        self._booked: list[tuple[float, int, _ManualTimer]] = []
        self._count = 0

    def now(self) -> float:
        """Monotonic seconds."""
        return self._now

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._now + self._wall_offset

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        """Book a call; it is made by the `advance` that reaches its time."""
        timer = _ManualTimer(call)
        self._count += 1
        heapq.heappush(self._booked, (when, self._count, timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Move on, making every call that falls due on the way, each at its own time."""
        end = self._now + seconds
        while self._booked and self._booked[0][0] <= end:
            when, _, timer = heapq.heappop(self._booked)
            self._now = max(self._now, when)
            if timer.call is not None:
                timer.call()
        self._now = end
