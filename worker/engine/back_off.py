"""How long to wait before a failed engine is started again."""

from __future__ import annotations

import random
from collections.abc import Callable

from tailrace.worker.engine.settings import StartSettings


class BackOff:
    """Doubles from failure to failure; a long healthy run starts it over."""

    __slots__ = ("_draw", "_settings", "failures")

    def __init__(self, settings: StartSettings, draw: Callable[[], float] = random.random) -> None:
        self._settings = settings
        self._draw = draw
        self.failures = 0

    def after(self, healthy: float) -> float:
        """Seconds to wait after a run that was ready for `healthy` seconds.

        The wait lies in the upper half of its bound, at random: replicas that died together do not return together.
        """
        if healthy >= self._settings.long_run:
            self.failures = 0
        self.failures += 1
        bound = min(self._settings.back_off * 2.0 ** min(self.failures - 1, 64), self._settings.back_off_limit)
        return bound * (0.5 + 0.5 * self._draw())

    @property
    def looping(self) -> bool:
        """Has it failed so often that somebody should look."""
        return self.failures >= self._settings.crash_loop
