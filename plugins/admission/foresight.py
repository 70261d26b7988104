"""Whose turn at a desk comes in time: from who is ahead, and from when the places there are likely to come free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.plugins.admission.desk import Desk, Rank
    from tailrace.plugins.admission.line import Waiter
    from tailrace.proxy.outlook import Outlook

_SURE: Final = 3.5
"""Spreads by which it has to be certain that a turn comes in time, or does not."""
_FEW: Final = 8
"""Places given to a class before their rate says anything."""
_S: Final = 1e-9


class Foresight:
    """For one desk; moments are monotonic nanoseconds, as there."""

    __slots__ = ("_desk",)

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def in_time(self, rank: Rank, tenant: str, due_ns: int, seconds: float, now_ns: int) -> bool:
        """Whether a call that comes now is all but certain to have its turn within so many seconds.

        True where nobody knows: too few calls have ended to tell.
        """
        # Whoever would be in time behind all that wait is so where it really stands.
        if self._comes(rank, self._desk.ahead(rank), seconds, now_ns, _SURE):
            return True
        above = sum([other.line.count for other in self._desk.ranks[: rank.number]])
        return self._comes(rank, above + rank.line.ahead_of(tenant, due_ns), seconds, now_ns, _SURE)

    def hopeless(self, now_ns: int) -> list[Waiter]:
        """Those in line who are all but certain to have their turn too late."""
        desk = self._desk
        found: list[Waiter] = []
        if not desk.waiting or not desk.outlook.known:
            return found
        ahead = 0
        for rank in desk.ranks:
            for waiter in rank.line.order() if rank.line.count else ():
                left = (waiter.until_ns - now_ns) * _S
                promoted = rank.promote_ns and waiter.since_ns + rank.promote_ns < waiter.until_ns
                if waiter.until_ns and not self._comes(rank, 0 if promoted else ahead, left, now_ns, -_SURE):
                    found.append(waiter)
                else:
                    ahead += 1
        return found

    def expected(self, rank: Rank, now_ns: int) -> float:
        """Seconds that a call which comes now is expected to wait; only where that can be known."""
        outlook = self._looked(now_ns)
        return outlook.wait(self._lacking(self._desk.ahead(rank)) / max(self._open_to(rank), _S), now_ns * _S)

    def _comes(self, rank: Rank, ahead: int, seconds: float, now_ns: int, sureness: float) -> bool:
        """Whether the turn of one behind so many comes in time; below 0, `sureness` is in favour of it."""
        if not self._desk.outlook.known:
            return True
        lacking = self._lacking(ahead)
        free = self._looked(now_ns).places(seconds, now_ns * _S, sureness) * self._open_to(rank)
        overtaken = self._overtaking(rank, now_ns) * seconds if sureness > 0.0 else 0.0
        if free - overtaken >= lacking:
            return True
        # Who has waited for long enough is overtaken no more.
        return 0 < rank.promote_ns * _S < seconds and free >= self._lacking(rank.line.count)

    def _looked(self, now_ns: int) -> Outlook:
        desk = self._desk
        now = now_ns * _S
        if desk.outlook.stale(now):
            desk.outlook.look([place.since_ns * _S for rank in desk.ranks for place in rank.inside.values()], now)
        return desk.outlook

    def _lacking(self, ahead: int) -> int:
        """How many places have to come free for one behind so many."""
        desk = self._desk
        return ahead + 1 + max(0, desk.inside - desk.capacity)

    def _open_to(self, rank: Rank) -> float:
        """The share of the places coming free that a class may take: where others have their reserve, they keep it."""
        desk = self._desk
        if not desk.inside:
            return 1.0
        kept = sum([min(other.floor, len(other.inside)) for other in desk.ranks if other is not rank])
        return (desk.inside - kept) / desk.inside

    def _overtaking(self, rank: Rank, now_ns: int) -> float:
        """Calls a second that have got places before this class, and will."""
        rate = 0.0
        for other in self._desk.ranks[: rank.number]:
            if len(other.seated) >= _FEW:
                rate += len(other.seated) / max((now_ns - other.seated[0]) * _S, _S)
        return rate
