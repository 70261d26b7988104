"""How many attempts may come on top of the first ones: a share of the calls of the last seconds, and a few in any case.

Retries help while few calls fail. Where most do, each would be a second request to workers that cannot serve the first.
"""

from __future__ import annotations

from typing import Final

_SLICES: Final = 10


class RetryBudget:
    """Of one process. What a call earns can be spent until `window` seconds later, and is forgotten then, but for
    `carried` attempts, which few calls put by in the end.
    """

    __slots__ = (
        "_at",
        "_carried",
        "_carries",
        "_earned",
        "_floor",
        "_share",
        "_slice",
        "_slot",
        "_spent",
        "_until",
        "earned",
        "spent",
    )

    def __init__(self, share: float, per_second: float, window: float, *, carried: float = 0.0) -> None:
        self._share = share
        self._floor = per_second * window
        self._slice = window / _SLICES
        self._earned = [0] * _SLICES
        self._spent = [0] * _SLICES
        self._carries = carried
        self._carried = 0.0
        self._slot = 0
        self._at = 0
        self._until = float("-inf")
        self.earned = 0
        """Calls in the window."""
        self.spent = 0
        """Further attempts in the window."""

    def earn(self, now: float) -> None:
        """A call has begun."""
        if now >= self._until:
            self._turn(now)
        self._earned[self._slot] += 1
        self.earned += 1

    def left(self, now: float) -> float:
        """How many further attempts may begin now; below 1, none."""
        if now >= self._until:
            self._turn(now)
        return self._floor + self._share * self.earned - self.spent + self._carried

    def ease(self, now: float) -> float:
        """The share of the budget that has not been spent; 1 while there is hardly any."""
        left = self.left(now)
        whole = left + self.spent
        return 1.0 if whole < 1.0 else max(0.0, left / whole)

    def spend(self, now: float) -> bool:
        """Take one, if there is one."""
        if self.left(now) < 1:
            return False
        self._spent[self._slot] += 1
        self.spent += 1
        return True

    def _turn(self, now: float) -> None:
        """Forget what is older than the window."""
        at = int(now / self._slice)
        for _ in range(min(at - self._at, _SLICES)):
            self._slot = (self._slot + 1) % _SLICES
            unspent = self._share * self._earned[self._slot] - self._spent[self._slot]
            self._carried = max(0.0, min(self._carries, self._carried + unspent))
            self.earned -= self._earned[self._slot]
            self.spent -= self._spent[self._slot]
            self._earned[self._slot] = self._spent[self._slot] = 0
        self._at = at
        self._until = (at + 1) * self._slice
