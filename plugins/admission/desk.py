"""The places at one pool's workers: who has one, who is next, and who has to give one up.

A class may take a place as long as the places that others have reserved and do not use are left over. Whoever can have
one has it, so those who wait keep nobody from a place that is not for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from tailrace.plugins.admission.foresight import Foresight
from tailrace.plugins.admission.line import Line, Waiter
from tailrace.proxy.outlook import Outlook
from tailrace.proxy.pace import Pace

if TYPE_CHECKING:
    from tailrace.plugins.admission.settings import ClassSettings
    from tailrace.proxy.call import Call

_LOOKED_AT: Final = 16
"""How many calls are asked to give up their place before one has to wait."""
_SEEN: Final = 32
_TURNS: Final = 2
"""How many times all places are filled that is remembered at least: one burst into free places is not what is usual."""


class Rank:
    """One class at one pool."""

    __slots__ = ("floor", "inside", "line", "name", "number", "promote_ns", "seated", "settings")

    def __init__(self, number: int, settings: ClassSettings) -> None:
        self.number = number
        self.settings = settings
        self.name = settings.name
        self.floor = 0
        self.inside: dict[Call, Place] = {}
        self.line = Line()
        self.seated: deque[int] = deque(maxlen=_SEEN)
        """When the last ones got their places."""
        self.promote_ns = int((settings.promote or 0) * 1e9)


class Place:
    """What a call has: a place since `since_ns`, or a `waiter` in line.

    `back` is the end of the wait of a call that had to give its place up.
    """

    __slots__ = ("back", "desk", "promoted", "rank", "since_ns", "waiter")

    def __init__(self, desk: Desk, rank: Rank) -> None:
        self.desk = desk
        self.rank = rank
        self.since_ns = 0
        self.promoted = False
        self.waiter: Waiter | None = None
        self.back: asyncio.TimerHandle | None = None


class Desk:
    """One pool's; moments are monotonic nanoseconds."""

    def __init__(self, classes: Sequence[ClassSettings], capacity: int) -> None:
        self.ranks = tuple(Rank(number, settings) for number, settings in enumerate(classes))
        self.pace = Pace()
        self.outlook = Outlook()
        self.foresight = Foresight(self)
        self.inside = 0
        self.promoted = 0
        self.capacity = 0
        self._waiting = 0
        self._places: dict[Call, Place] = {}
        self.resize(capacity, 0)

    def resize(self, capacity: int, now_ns: int) -> None:
        """There are so many places now; nobody has to leave."""
        if capacity != self.capacity:
            self.capacity = capacity
            for rank in self.ranks:
                rank.floor = int(rank.settings.reserve * capacity)
                rank.seated = deque(rank.seated, maxlen=max(_SEEN, _TURNS * capacity))
            self.fill(now_ns)

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return self._waiting

    def fits(self, rank: Rank) -> bool:
        """Whether a class may take one more place."""
        kept = 0
        for other in self.ranks:
            if other is not rank and other.floor > len(other.inside):
                kept += other.floor - len(other.inside)
        return self.inside + kept < self.capacity

    def ahead(self, rank: Rank) -> int:
        """How many wait that go before a call of this class that comes now."""
        return sum([other.line.count for other in self.ranks[: rank.number + 1]])

    def enter(self, call: Call, rank: Rank, now_ns: int) -> Place | None:
        """A place, None where the call has to wait."""
        if rank.line.count or not self.fits(rank):
            return None
        place = self._places[call] = Place(self, rank)
        self._seat(call, place, now_ns)
        return place

    def _seat(self, call: Call, place: Place, now_ns: int) -> None:
        place.since_ns = now_ns
        place.waiter = None
        place.rank.inside[call] = place
        place.rank.seated.append(now_ns)
        self.inside += 1

    def queue(self, waiter: Waiter, rank: Rank) -> Place:
        """Stand in the line of a class."""
        place = self._places.get(waiter.call)
        if place is None:
            place = self._places[waiter.call] = Place(self, rank)
        place.waiter = waiter
        rank.line.join(waiter)
        self._waiting += 1
        return place

    def leave(self, call: Call, now_ns: int) -> None:
        """The call is over: somebody else gets its place. Any number of times."""
        place = self._places.pop(call, None)
        if place is None:
            return
        if place.waiter is not None:
            place.rank.line.leave(place.waiter)
            self._waiting -= 1
        else:
            self._unseat(call, place)
            self.pace.ended()
            self.outlook.ended((now_ns - place.since_ns) * 1e-9, now_ns * 1e-9)
        self.fill(now_ns)

    def _unseat(self, call: Call, place: Place) -> None:
        del place.rank.inside[call]
        self.inside -= 1

    def fill(self, now_ns: int) -> None:
        """Give free places to those who are next."""
        while self._waiting and (waiter := self._next(now_ns)) is not None:
            self._waiting -= 1
            self._seat(waiter.call, self._places[waiter.call], now_ns)
            waiter.wake()

    def _next(self, now_ns: int) -> Waiter | None:
        if self.inside >= self.capacity:
            return None
        waiter = self._overdue(now_ns)
        if waiter is not None:
            return waiter
        for rank in self.ranks:
            if rank.line.count and self.fits(rank):
                return rank.line.take()
        return None

    def _overdue(self, now_ns: int) -> Waiter | None:
        """Of those who have waited too long for their class, who has longest."""
        longest, found, of = -1, None, None
        for rank in self.ranks:
            if rank.promote_ns and rank.line.count and self.fits(rank):
                waiter = rank.line.oldest()
                if waiter is not None and (over := now_ns - waiter.since_ns - rank.promote_ns) > longest:
                    longest, found, of = over, waiter, rank
        if found is None or of is None:
            return None
        of.line.leave(found)
        self._places[found.call].promoted = True
        self.promoted += 1
        return found

    def victims(self, rank: Rank) -> list[tuple[Call, Place]]:
        """Who might give up a place for a call of this class: the lowest class first, its latest call first."""
        found: list[tuple[Call, Place]] = []
        for other in reversed(self.ranks[rank.number + 1 :]):
            if len(other.inside) > other.floor:
                latest = islice(reversed(other.inside.items()), _LOOKED_AT - len(found))
                found += [(call, place) for call, place in latest if not place.promoted]
        return found

    def give_up(self, call: Call, waiter: Waiter) -> None:
        """Take a call's place, and put it back in line."""
        place = self._places[call]
        self._unseat(call, place)
        self.queue(waiter, place.rank)
