"""How soon workers begin to answer at present: an average by model, prompt size and whether answers of that kind can
come as streams, with what it usually is off by.

It errs on the side of letting calls through: an average is believed while it is fresh, and less its usual error; and
of the calls that it speaks against one goes through now and then, as nobody else would tell that things are better.
"""

from __future__ import annotations

from typing import Final

FRESH: Final = 2.0
"""Seconds after which an observation says nothing of the present."""
TRIAL: Final = 0.25
"""Seconds between two calls that go through against the forecast."""
_WEIGHT: Final = 0.2
_SMALLEST: Final = 10
"""Bits of a prompt's size below which all are alike: 1 KiB."""
_MOST: Final = 4096
_HARDLY_EVER: Final = 4.0
"""Mean errors above the mean that a retransmission timer waits (RFC 6298)."""


class Trend:
    """One average; seconds."""

    __slots__ = ("error", "mean", "seen", "tried")

    def __init__(self, took: float, now: float) -> None:
        self.mean = took
        # One alone says little.
        self.error = took / 2.0
        self.seen = self.tried = now


class Forecast:
    """The averages of one process; `now` is any clock in seconds."""

    __slots__ = ("_count", "_trends")

    def __init__(self) -> None:
        self._trends: dict[str, list[Trend | None]] = {}
        """By model; at twice the size class of the prompt, and one more for streams."""
        self._count = 0

    def note(self, model: str, size: int, stream: bool, took: float, now: float) -> None:
        """The first content for a prompt of so many bytes took so long."""
        trend = self._trend(model, size, stream)
        if trend is None or now - trend.seen > FRESH:
            self._begin(model, size, stream, took, now)
            return
        trend.seen = now
        off = took - trend.mean
        trend.mean += _WEIGHT * off
        trend.error += _WEIGHT * ((off if off > 0.0 else -off) - trend.error)

    def note_late(self, model: str, size: int, stream: bool, waited: float, now: float) -> None:
        """It had not come after so long, when nobody waited any more: it would have taken longer."""
        trend = self._trend(model, size, stream)
        if trend is None or now - trend.seen > FRESH or waited > trend.mean:
            self.note(model, size, stream, waited, now)

    def times(self, model: str, size: int, stream: bool, now: float) -> tuple[float, float]:
        """Seconds that a first content takes, or more, and that hardly any exceeds; 0 where nothing is known."""
        trend = self._trend(model, size, stream)
        if trend is None or now - trend.seen > FRESH:
            return 0.0, 0.0
        return max(0.0, trend.mean - trend.error), trend.mean + _HARDLY_EVER * trend.error

    def speaks_against(self, model: str, size: int, stream: bool, left: float, now: float) -> float:
        """The seconds that a first content takes, where that is more than is left and no trial is due; else 0."""
        trend = self._trend(model, size, stream)
        if trend is None or trend.mean - trend.error <= left or now - trend.seen > FRESH:
            return 0.0
        if now - trend.tried >= TRIAL:
            trend.tried = now
            return 0.0
        return trend.mean

    def _trend(self, model: str, size: int, stream: bool) -> Trend | None:
        its = self._trends.get(model)
        if its is None:
            return None
        place = _place(size, stream)
        return its[place] if place < len(its) else None

    def _begin(self, model: str, size: int, stream: bool, took: float, now: float) -> None:
        if self._count >= _MOST:
            self._trends.clear()
            self._count = 0
        its = self._trends.setdefault(model, [])
        place = _place(size, stream)
        while len(its) <= place:
            its.append(None)
        if its[place] is None:
            self._count += 1
        its[place] = Trend(took, now)


def _place(size: int, stream: bool) -> int:
    bits = 0
    size >>= _SMALLEST
    while size:
        bits += 2
        size >>= 1
    return bits + 1 if stream else bits
