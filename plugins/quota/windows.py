"""The windows of time that limits hold for, and the clock they are told by."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

FOREVER: Final = 1 << 62
AT_ONCE: Final = "at_once"
"""The `per` of what is bounded at every moment: calls and tokens that run now."""
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600}
_SLEW: Final = 0.05


class Window(NamedTuple):
    """From `begins` to before `ends`, in seconds since the epoch."""

    begins: int
    ends: int


def window_at(per: str, zone: str, now: float) -> Window:
    """The window of a kind that `now` lies in; days and months are those of a time zone."""
    seconds = _SECONDS.get(per)
    if seconds is not None:
        begins = int(now // seconds) * seconds
        return Window(begins, begins + seconds)
    if per not in ("day", "month"):
        return Window(0, FOREVER)
    here = ZoneInfo(zone)
    first = datetime.fromtimestamp(now, here).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if per == "day":
        after = first + timedelta(days=1)
    else:
        first = first.replace(day=1)
        after = (first + timedelta(days=32)).replace(day=1)
    return Window(int(first.timestamp()), int(after.timestamp()))


class Clock:
    """Seconds since the epoch that never step: read once from the wall, then carried by the monotonic clock.

    `agree` draws it slowly towards a reference that all hosts share, so that they agree on where windows begin.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._offset = wall() - monotonic()
        self._agreed = monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._monotonic() + self._offset

    def monotonic_of(self, moment: float) -> float:
        """When the monotonic clock, which all processes of a host share, shows a moment."""
        return moment - self._offset

    def agree(self, reference: float) -> None:
        """Move towards another clock's `now`, by a twentieth of the time that went by since the last move."""
        there = self._monotonic()
        most = (there - self._agreed) * _SLEW
        self._agreed = there
        self._offset += max(-most, min(most, reference - self.now()))
