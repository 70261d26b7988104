"""How fast calls leave the engine, for an honest answer to "when should I ask again?"."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

KEPT = 64
WINDOW = 30.0
SOONEST = 1.0
LATEST = 60.0


class Pace:
    """The ends of the last calls."""

    __slots__ = ("_clock", "_ends")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: deque[float] = deque(maxlen=KEPT)

    def ended(self) -> None:
        """A call has left the engine."""
        self._ends.append(self._clock())

    def wait_for(self, places: int) -> float:
        """Seconds until so many calls will have left, by the recent rate; never under a second."""
        now = self._clock()
        recent = [end for end in self._ends if now - end <= WINDOW]
        if len(recent) < 2:
            return SOONEST
        rate = len(recent) / max(now - recent[0], 1e-3)
        return min(max(places / rate, SOONEST), LATEST)
