"""How long calls of a kind wait for their first content, in the last half minute: one histogram for each kind.

Of one process. The quantile is made anew every few seconds for all kinds at once, so that asking for it is one look
into a dictionary. Kinds come and go with the traffic, and their number is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from typing import Final

BOUNDS: Final = tuple(0.001 * 1.15**place for place in range(84))
"""The longest times of the bins, from 1 ms up to two minutes; the last bin has all that is longer."""
_BINS: Final = len(BOUNDS) + 1
_MOST: Final = 128


class Histogram:
    """Times of the last slices; `turn` begins another slice and forgets the oldest."""

    __slots__ = ("_bins", "_place", "_present", "_slices", "count")

    def __init__(self, slices: int) -> None:
        self._bins = [0] * _BINS
        self._slices = [[0] * _BINS for _ in range(slices)]
        self._place = 0
        self._present = self._slices[0]
        self.count = 0

    def add(self, seconds: float) -> None:
        """Count a time."""
        place = bisect_left(BOUNDS, seconds)
        self._bins[place] += 1
        self._present[place] += 1
        self.count += 1

    def turn(self) -> None:
        """Another slice begins."""
        self._place = (self._place + 1) % len(self._slices)
        oldest = self._slices[self._place]
        self._bins = [all_of - old for all_of, old in zip(self._bins, oldest, strict=True)]
        self.count -= sum(oldest)
        self._present = self._slices[self._place] = [0] * _BINS

    def quantile(self, share: float) -> float:
        """A time that this share of those counted does not pass."""
        above = int(self.count * (1.0 - share) + 1e-9)
        for place in range(_BINS - 1, 0, -1):
            above -= self._bins[place]
            if above < 0:
                return BOUNDS[min(place, len(BOUNDS) - 1)]
        return BOUNDS[0]


class Latencies:
    """The histograms of all kinds of calls, and a quantile of each that has enough of them."""

    def __init__(self, share: float, least: int, *, window: float = 30.0, refresh: float = 3.0) -> None:
        self._share = share
        self._least = least
        self._slices = max(1, round(window / refresh))
        self._refresh = refresh
        self._due = float("-inf")
        self._histograms: dict[Hashable, Histogram] = {}
        self._usual: dict[Hashable, float] = {}

    def note(self, kind: Hashable, seconds: float, now: float) -> None:
        """A call of this kind has waited so long."""
        if now >= self._due:
            self._turn(now)
        found = self._histograms.get(kind)
        if found is None:
            if len(self._histograms) >= _MOST:
                return
            found = self._histograms[kind] = Histogram(self._slices)
        found.add(seconds)

    def usual(self, kind: Hashable, now: float) -> float | None:
        """What this share of such calls does not wait longer than; None where there were too few lately."""
        if now >= self._due:
            self._turn(now)
        return self._usual.get(kind)

    def _turn(self, now: float) -> None:
        first = self._due == float("-inf")
        missed = 0 if first else min(int((now - self._due) // self._refresh) + 1, self._slices)
        self._due = now + self._refresh
        usual = {}
        for kind, histogram in list(self._histograms.items()):
            for _ in range(missed):
                histogram.turn()
            if not histogram.count:
                del self._histograms[kind]
            elif histogram.count >= self._least:
                usual[kind] = histogram.quantile(self._share)
        self._usual = usual
