"""When places come free: from how long calls have them, and how long those that have one now have had it.

Of calls that take the same time it is known exactly. Of others it is an expectation with a spread, as if the calls knew
nothing of each other; whoever asks says how sure to be. A place that comes free is taken at once by the next in line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from math import exp, sqrt
from typing import Final

KEPT: Final = 2048
KNOWN: Final = 8
"""Ends of calls before which nothing is known."""
STALE: Final = 0.05
"""Seconds after which the places are looked at again."""
_LEARNT: Final = 128
"""Times that are counted with."""
_ENOUGH: Final = 32
_LATELY: Final = 4.0
"""Times the longest of them that they may be old."""
_STEPS: Final = 64
_AHEAD: Final = 2.0
"""How far is looked at most, in times of what a call takes; beyond, places come free as they did up to there."""
_GROUPS: Final = 64
_EDGE: Final = 1e-6


class Outlook:
    """Of one set of places; moments and times are seconds of any one clock."""

    __slots__ = ("_at", "_ends", "_far", "_free", "_gone", "_size", "_spread", "_step")

    def __init__(self) -> None:
        self._ends: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._at = float("-inf")
        self._step = 0.0
        self._gone = 0
        self._far = 0.0
        self._size = 1
        self._free: list[float] = []
        self._spread: list[float] = []

    def ended(self, took: float, now: float) -> None:
        """A place is free again that a call has had for so long."""
        self._ends.append((now, took))
        self._gone += 1

    @property
    def known(self) -> bool:
        """Whether enough calls have ended to tell when others will."""
        return len(self._ends) >= KNOWN

    def stale(self, now: float) -> bool:
        """Whether it takes another `look` to tell."""
        return not self._free or not 0.0 <= now - self._at < STALE

    def look(self, since: Sequence[float], now: float) -> None:
        """See who has a place now, and from when on; only where enough is known."""
        took = self._times(now)
        mean = max(sum(took) / len(took), _EDGE)
        self._at = now
        self._gone = 0
        # As far as was asked for lately: steps are the shorter.
        self._step = step = max(min(self._far or mean, mean) * _AHEAD, _EDGE) / _STEPS
        self._far = 0.0
        free, spread, doubt = [0.0] * (_STEPS + 1), [0.0] * (_STEPS + 1), [0.0] * (_STEPS + 1)
        order = sorted(since)
        self._size = size = len(order) // _GROUPS + 1
        for first in range(0, len(order), size):
            group = order[first : first + size]
            # Of those taken together the one that came last counts: nobody is promised a place too early.
            _add_those_inside(took, now - group[-1], float(len(group)), step, mean, free, spread, doubt)
        _add_those_to_come(took, step, free, spread, doubt)
        self._free = free
        # What few have shown is wrong for all alike.
        self._spread = [each + off * off for each, off in zip(spread, doubt, strict=True)]

    def _times(self, now: float) -> list[float]:
        """How long calls take, in order: those that began within a time of which all ends are known.

        Of others the short ones have ended and the long ones have not, which misleads where there are suddenly more.
        """
        ends = self._ends
        known, longest = ends[0][0], max([took for _, took in ends])
        since = max(known, now - _LATELY * longest)
        found = [took for end, took in ends if since <= end - took <= now - longest]
        if len(found) < _ENOUGH:
            found = [took for _, took in list(ends)[-_LEARNT:]]
        found.sort()
        count = len(found)
        return [found[at * count // _LEARNT] for at in range(_LEARNT)] if count > _LEARNT else found

    def places(self, seconds: float, now: float, sureness: float) -> float:
        """How many come free within so many seconds, all but certainly: what is expected, less some of its spreads.

        With a `sureness` below 0 it is how many may come free at the most.
        """
        self._far = max(self._far, seconds)
        steps = max(0.0, now - self._at + seconds) / self._step
        if sureness < 0.0:
            # Whoever ends between two steps, or is taken together with a younger one, is counted too late for this.
            steps += 2.0
        expected, spread = _read(self._free, steps), _read(self._spread, steps)
        if sureness < 0.0:
            expected += self._size - 1
        if steps < _STEPS:
            # When within a step, nobody knows: as if by chance.
            whole = int(steps)
            spread += (self._free[whole + 1] - self._free[whole]) * (steps - whole) * (whole + 1 - steps)
        return max(0.0, expected - self._gone - sureness * sqrt(spread) + _EDGE)

    def wait(self, places: float, now: float) -> float:
        """Seconds until so many are expected to have come free."""
        wanted = self._gone + places - _EDGE
        last = self._free[_STEPS]
        if wanted > last:
            steps = _STEPS * (wanted / last) if last > 0.0 else float("inf")
        else:
            step = next(step for step in range(_STEPS + 1) if self._free[step] >= wanted)
            before = self._free[step - 1] if step else 0.0
            gained = self._free[step] - before
            steps = step - (self._free[step] - wanted) / gained if gained > 0.0 else float(step)
        return max(0.0, steps * self._step - (now - self._at))


def _add_those_inside(
    took: list[float],
    age: float,
    weight: float,
    step: float,
    mean: float,
    free: list[float],
    spread: list[float],
    doubt: list[float],
) -> None:
    """The calls of one age: each ends as those did that had taken at least as long."""
    count = len(took)
    first = bisect_right(took, age)
    rest = count - first
    at = first
    for number in range(1, _STEPS + 1):
        if rest:
            bound = age + number * step
            while at < count and took[at] <= bound:
                at += 1
            share = (at - first) / rest
        else:
            # It has outlived all that are known of: it may go on for as long as it has.
            share = 1.0 - exp(-number * step / max(age, mean))
        free[number] += weight * share
        unsure = share * (1.0 - share)
        if unsure > 0.0:
            spread[number] += weight * unsure
            doubt[number] += weight * sqrt(unsure / max(rest, 1))


def _add_those_to_come(
    took: list[float], step: float, free: list[float], spread: list[float], doubt: list[float]
) -> None:
    """The calls that take what comes free end in turn, the short ones of them soon."""
    count = len(took)
    shares = [0.0] * (_STEPS + 1)
    for number in range(1, _STEPS + 1):
        shares[number] = bisect_right(took, (number - 0.5) * step) / count
    for number in range(1, _STEPS + 1):
        came = free[number] - free[number - 1]
        if came <= 0.0:
            continue
        for later in range(number, _STEPS + 1):
            share = shares[later - number]
            if share > 0.0:
                free[later] += came * share
                unsure = share * (1.0 - share)
                if unsure > 0.0:
                    spread[later] += came * unsure
                    doubt[later] += came * sqrt(unsure / count)


def _read(curve: list[float], steps: float) -> float:
    """Between two steps a straight line, behind the last one as steep as the whole."""
    if steps >= _STEPS:
        return curve[_STEPS] * steps / _STEPS
    whole = int(steps)
    low = curve[whole]
    return low + (curve[whole + 1] - low) * (steps - whole)
