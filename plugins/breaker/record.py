"""What one process has lately seen of one worker: faults in a row, calls that went well, and its pace."""

from __future__ import annotations

from typing import Final

WINDOW: Final = 30.0
_SLICES: Final = 10
_LENGTH: Final = WINDOW / _SLICES
_WEIGHT: Final = 0.1
"""Of each new sample: twenty of them are most of an average."""
_MOST: Final = 100.0


class Record:
    """Counts of the last half minute, and averages of the last streams; `now` is in seconds."""

    __slots__ = (
        "_at", "_bad", "_good", "_slot", "bad", "good", "pace", "sampled", "samples", "stalls", "streak", "wait",
    )  # fmt: skip

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was before is answered for."""
        self._good = [0] * _SLICES
        self._bad = [0] * _SLICES
        self._slot = self._at = 0
        self.good = self.bad = self.streak = self.stalls = self.samples = 0
        self.pace = 1.0
        """Its time to first content beside that of its pool, for like prompts."""
        self.wait = 0.0
        """The same in seconds."""
        self.sampled = 0.0

    def succeeded(self, now: float) -> None:
        """An answer has begun."""
        self._turn(now)
        self._good[self._slot] += 1
        self.good += 1
        self.streak = self.stalls = 0

    def failed(self, now: float, *, stalled: bool) -> None:
        """A fault that is the worker's; `stalled` where it said nothing until a limit."""
        self._turn(now)
        self._bad[self._slot] += 1
        self.bad += 1
        self.streak += 1
        self.stalls = self.stalls + 1 if stalled else 0

    def paced(self, ratio: float, seconds: float, now: float) -> None:
        """A first content has come, or has not come for so long."""
        ratio = min(ratio, _MOST)
        weight = 1.0 if not self.samples else max(_WEIGHT, 1.0 / (self.samples + 1))
        self.pace += (ratio - self.pace) * weight
        self.wait += (seconds - self.wait) * weight
        self.samples += 1
        self.sampled = now

    def _turn(self, now: float) -> None:
        at = int(now / _LENGTH)
        if at == self._at:
            return
        for _ in range(min(at - self._at, _SLICES)):
            self._slot = (self._slot + 1) % _SLICES
            self.good -= self._good[self._slot]
            self.bad -= self._bad[self._slot]
            self._good[self._slot] = self._bad[self._slot] = 0
        self._at = at


class Baseline:
    """The median time to first content of calls of a kind, over all workers; it moves a little with each."""

    __slots__ = ("median",)

    def __init__(self, seconds: float) -> None:
        self.median = max(seconds, 1e-4)

    def note(self, seconds: float) -> float:
        """How many times the median this one is."""
        ratio = seconds / self.median
        # By steps, however far off it is: a few that are very slow do not count for more than others.
        self.median *= 1.05 if ratio > 1.0 else 1 / 1.05
        return ratio
