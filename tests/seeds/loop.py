"""An event loop without waiting: timers fire in the order of their times, and the clock jumps to each."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any


class Handle:
    def __init__(self, work: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._work = work
        self._args = args
        self.cancelled = False
        self.done = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        self.done = True
        if not self.cancelled:
            self._work(*self._args)


class Clock:
    """The coarse clock that connections read: brought up to date with every timer."""

    now = 0.0


class VirtualLoop:
    def __init__(self, start: float = 1000.0) -> None:
        self.clock = Clock()
        self.clock.now = start
        self.failures: list[dict[str, Any]] = []
        self._order = count()
        self._heap: list[tuple[float, int, Handle]] = []

    def time(self) -> float:
        return self.clock.now

    def time_ns(self) -> int:
        return int(self.clock.now * 1e9)

    def call_later(self, delay: float, work: Callable[..., object], *args: Any) -> Handle:
        handle = Handle(work, args)
        heapq.heappush(self._heap, (self.clock.now + max(0.0, delay), next(self._order), handle))
        return handle

    def call_soon(self, work: Callable[..., object], *args: Any) -> Handle:
        return self.call_later(0.0, work, *args)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def run_until(self, end: float) -> None:
        while self._heap and self._heap[0][0] <= end:
            at, _, handle = heapq.heappop(self._heap)
            self.clock.now = max(self.clock.now, at)
            handle.run()
        self.clock.now = max(self.clock.now, end)

    def pending(self) -> int:
        """Timers that would still do something."""
        return sum(not handle.cancelled for _, _, handle in self._heap)
