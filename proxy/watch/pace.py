"""How often lists of workers may be built anew: at once as long as that is little work, then once for many changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LITTLE: Final = 0.005
"""Seconds of work that are done at once within a PERIOD."""
PERIOD: Final = 0.05
REST: Final = 9
"""How many times longer than the work nothing is done behind a lot of it."""


class Pace:
    """Of one kind of work."""

    __slots__ = ("_clock", "_spent", "_until")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent = 0.0
        self._until = 0.0

    @property
    def wait(self) -> float:
        """Seconds until more may be done, 0 where that is now."""
        now = self._clock()
        if now >= self._until:
            self._spent, self._until = 0.0, now + PERIOD
        return 0.0 if self._spent < LITTLE else self._until - now

    def do(self, work: Callable[[], None]) -> None:
        """Work, and note how long it took."""
        began = self._clock()
        try:
            work()
        finally:
            now = self._clock()
            self._spent += now - began
            self._until = max(self._until, now + REST * (now - began))
