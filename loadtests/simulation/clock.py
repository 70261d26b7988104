"""A clock that goes from event to event."""

import heapq
from collections.abc import Callable
from itertools import count


class VirtualClock:
    """What is due, in order of its time; among the same times, in order of entry."""

    def __init__(self) -> None:
        self.now = 1000.0  # a clock at 0 would look as if nothing had ever been measured
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._entries = count()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._due, (self.now + seconds, next(self._entries), act))

    def run(self, until: float) -> None:
        """Do what is due until then; the rest is dropped."""
        while self._due and self._due[0][0] <= until:
            self.now, _, act = heapq.heappop(self._due)
            act()
        self.now = until
        self._due.clear()
