"""Five times what the places can carry, on a clock that goes from event to event: who is refused, and when."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest
from tailrace.plugins.admission.desk import Desk
from tailrace.plugins.admission.line import Waiter
from tailrace.plugins.admission.settings import ClassSettings

pytestmark = pytest.mark.interpreted
S = 1_000_000_000
PLACES = 80
CAN_WAIT = 0.9
LOOK = 0.25
BEFORE, BURST = 12.0, 20.0


class Call:
    """A call that has its place for so many seconds."""

    def __init__(self, takes: float) -> None:
        self.takes = takes
        self.refused = False


class Play:
    """One class of calls at a desk, which ask it as the plugin does."""

    def __init__(self, takes: Callable[[random.Random], float], mean: float, *, foresees: bool = True) -> None:
        self.chance = random.Random(7)
        self.takes = takes
        self.rate = PLACES / mean
        self.foresees = foresees
        self.now = 1000.0
        self.desk = Desk([ClassSettings(name="only", queue=10_000)], PLACES)
        self.served = self.at_once = self.late = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, act))

    @property
    def ns(self) -> int:
        return int(self.now * S)

    def come(self) -> None:
        self.after(self.chance.expovariate(self.rate * (0.7 if self.now < 1000.0 + BEFORE else 5.0)), self.come)
        desk, call = self.desk, Call(self.takes(self.chance))
        [rank] = desk.ranks
        if desk.enter(call, rank, self.ns) is not None:  # type: ignore[arg-type]
            self.sit(call)
            return
        until = self.ns + int(CAN_WAIT * S)
        if self.foresees and not desk.foresight.in_time(rank, "", until, CAN_WAIT, self.ns):
            self.at_once += 1
        else:
            waiter = Waiter(call, "", until, self.ns, lambda: self.sit(call), until, lambda: self.give_up(call))  # type: ignore[arg-type]
            place = desk.queue(waiter, rank)
            self.after(CAN_WAIT, lambda: place.waiter is None or call.refused or self.give_up(call))

    def sit(self, call: Call) -> None:
        self.served += 1
        self.after(call.takes, lambda: self.desk.leave(call, self.ns))  # type: ignore[arg-type]

    def give_up(self, call: Call) -> None:
        call.refused = True
        self.late += 1
        self.desk.leave(call, self.ns)  # type: ignore[arg-type]

    def look(self) -> None:
        self.after(LOOK, self.look)
        for waiter in self.desk.foresight.hopeless(self.ns) if self.foresees else ():
            assert waiter.refuse is not None
            waiter.refuse()

    def run(self) -> Play:
        self.after(0.0, self.come)
        self.after(LOOK, self.look)
        while self._due[0][0] <= 1000.0 + BEFORE + BURST:
            self.now, _, act = heapq.heappop(self._due)
            act()
        return self


def steady(_: random.Random) -> float:
    return 2.0


def short_or_long(chance: random.Random) -> float:
    return chance.choice((0.35, 4.25))


def scattered(chance: random.Random) -> float:
    return chance.expovariate(1 / 2.0)


@pytest.mark.parametrize(
    ("takes", "mean", "too_late"), [(steady, 2.0, 0.0), (short_or_long, 2.3, 0.002), (scattered, 2.0, 0.002)]
)
def test_a_burst_is_refused_at_once_and_places_stay_taken(
    takes: Callable[[random.Random], float], mean: float, too_late: float
):
    play = Play(takes, mean).run()
    # All that could be served by whoever lets everybody wait for as long as they can.
    most = Play(takes, mean, foresees=False).run()
    assert most.late > 1000
    assert play.at_once > 1000
    assert play.late <= too_late * play.served
    assert play.served >= 0.97 * most.served
