"""Power of two choices on predicted time to first token, after a look at where the call's session or prefix leads.

Two candidates are drawn and the one that is expected to answer sooner gets the call: a glance at few of them does not
send everybody to the one that looked best a moment ago. Where both are expected to take far longer than is usual, all
candidates are looked at. A session's or prefix's worker comes first, unless it is loaded above its share, or so slow
that what it has in its cache would not make up for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import random
from typing import TYPE_CHECKING, Final

from tailrace.plugins.route.affinity import NONE, PREFIX, SESSION, Affinity
from tailrace.plugins.route.grounds import Grounds
from tailrace.plugins.route.lessons import Lessons
from tailrace.plugins.route.simple import SMALLEST, drawn
from tailrace.plugins.route.trip import Trip
from tailrace.proxy.fleet import MAX_CANDIDATES

if TYPE_CHECKING:
    from tailrace.plugins.route.settings import Config
    from tailrace.plugins.route.tempo import Tempo
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker

_ALIKE: Final = 0.05
"""Share of a time by which two may differ that nobody can tell apart: the less loaded is taken then, or the first."""
_FAR: Final = 1.3
"""Times what choices led to lately: where the better of two is expected to take longer, all are looked at."""
_TOLERATED: Final = 2.0
"""Times what a call of its size takes alone that it may wait longer where its prompt is likely to be cached."""
_SLACK: Final = 0.02
"""Seconds that it may in any case: too few to move a session for."""
_OTHERS: Final = 0.25
"""The score of those that were not chosen."""
_SMOOTH: Final = 0.1
"""The weight of one choice beside the mean of those before."""
_RISE: Final = 0.01
"""The same for what is expected where that gets longer: so bad choices do not become what is expected."""
_NEAR: Final = 4
"""Workers of the preferred region among the candidates of a large pool."""
_FREE: Final = 2.0
"""Calls under way that overload nobody."""


class Tail:
    """Chooses, by what an instance of Lessons knows; one for each chain and process."""

    __slots__ = ("_affinity", "_factor", "_lessons", "_margin", "_region", "decided", "spilled")

    def __init__(self, config: Config, lessons: Lessons) -> None:
        self._lessons = lessons
        self._affinity = Affinity(config.prefix, config.session_headers, config.session_fields)
        self._factor = config.load_factor
        self._region = config.region
        self._margin = config.region_margin
        self.decided = {"prefix": 0, "second": 0, "session": 0, "draw": 0}
        """How often what decided; `second` is where calls go that their first place has no room for."""
        self.spilled = 0
        """Choices that passed over a place where a session or prefix leads."""

    def scores(self, call: Call, candidates: Sequence[Worker]) -> Sequence[float]:
        """1 for the chosen one."""
        count = len(candidates)
        if count == 1:
            return [1.0]
        trip = self._aimed(call)
        grounds = self._lessons.grounds_of(call, candidates[0], trip)
        if grounds is None:
            return [1.0] * count
        now = self._lessons.now()
        seconds = [0.0] * count
        if self._region is not None:
            best = self._near_first(grounds, candidates, trip, seconds, now)
        else:
            best = self._drawn(grounds, candidates, trip, seconds, now)
        if trip.first != NONE:
            best = self._led(grounds, candidates, trip, seconds, best, now)
        else:
            self.decided["draw"] += 1
        found = [_OTHERS] * count
        found[best] = 1.0
        return found

    def _drawn(
        self, grounds: Grounds, candidates: Sequence[Worker], trip: Trip, seconds: list[float], now: float
    ) -> int:
        """The better of two; `seconds` gets what is predicted."""
        count = len(candidates)
        if grounds.even:
            one = int(random() * count)
            two = int(random() * (count - 1))
            if two >= one:
                two += 1
        else:
            weights = [worker.weight for worker in candidates]
            one = drawn(weights)
            weights[one] = 0.0
            two = drawn(weights) if any(weights) else one
        row = trip.row
        worker = candidates[one]
        tempo = grounds.tempo_of(worker)
        seconds[one] = least = tempo.predict(worker, row, now)
        best = one
        load = worker.inflight + tempo.hidden
        if two != one:
            worker = candidates[two]
            tempo = grounds.tempo_of(worker)
            seconds[two] = found = tempo.predict(worker, row, now)
            there = worker.inflight + tempo.hidden
            other = candidates[one]
            if abs(found - least) <= _ALIKE * least:
                better = worker.inflight * other.weight < other.inflight * worker.weight
            else:
                better = found * _excess(grounds, worker, there) < least * _excess(grounds, other, load)
            load = 0.5 * (load + there)
            if better:
                best, least = two, found
        if self._noted(grounds, row, load, least):
            return self._best_of_all(grounds, candidates, row, seconds, now)
        return best

    def _noted(self, grounds: Grounds, row: int, load: float, least: float) -> bool:
        """Keep in mind what a look at some has shown; whether all should be looked at."""
        grounds.mean_load += _SMOOTH * (load - grounds.mean_load)
        expected = grounds.expected
        usual = expected[row]
        expected[row] = usual + (_RISE if least > usual else _SMOOTH) * (least - usual) if usual > 0.0 else least
        return least > _FAR * usual > 0.0

    def _best_of_all(
        self, grounds: Grounds, candidates: Sequence[Worker], row: int, seconds: list[float], now: float
    ) -> int:
        best, least = 0, float("inf")
        for index, worker in enumerate(candidates):
            if worker.weight > 0.0:
                tempo = grounds.tempo_of(worker)
                if seconds[index] <= 0.0:
                    seconds[index] = self._predicted(tempo, worker, row, now)
                found = seconds[index] * _excess(grounds, worker, worker.inflight + tempo.hidden)
                if found < least:
                    best, least = index, found
        return best

    def _near_first(
        self, grounds: Grounds, candidates: Sequence[Worker], trip: Trip, seconds: list[float], now: float
    ) -> int:
        """The better of two near ones, unless the better of two others is expected sooner by the margin."""
        region, row = self._region, trip.row
        best, load = -1, 0.0
        for near in (True, False):
            weights = [
                max(worker.weight, SMALLEST) if (worker.region == region) is near else 0.0 for worker in candidates
            ]
            better, least, there = -1, 0.0, 0.0
            looked = min(len(weights) - weights.count(0.0), 2)
            for _ in range(looked):
                index = drawn(weights)
                weights[index] = 0.0
                worker = candidates[index]
                tempo = grounds.tempo_of(worker)
                seconds[index] = self._predicted(tempo, worker, row, now)
                under_way = worker.inflight + tempo.hidden
                there += under_way / looked
                found = seconds[index] * _excess(grounds, worker, under_way)
                if better < 0 or found < least:
                    better, least = index, found
            if better < 0:
                continue
            if best < 0:
                # What is under way far away says nothing of those that sessions and prefixes live at.
                best, load = better, there
            elif seconds[better] < seconds[best]:
                best = better
        if self._noted(grounds, row, load, seconds[best]):
            return self._best_of_all(grounds, candidates, row, seconds, now)
        return best

    def _predicted(self, tempo: Tempo, worker: Worker, row: int, now: float) -> float:
        """Seconds until first content; those that are not near are taken to need the margin more."""
        found = tempo.predict(worker, row, now)
        return found + self._margin if self._region is not None and worker.region != self._region else found

    def _led(
        self,
        grounds: Grounds,
        candidates: Sequence[Worker],
        trip: Trip,
        seconds: list[float],
        best: int,
        now: float,
    ) -> int:
        """Where the session or prefix leads, unless that is overloaded or slow: then the best of those drawn."""
        bound = max(self._factor * grounds.mean_load, _FREE)
        least = seconds[best] + _SLACK
        tolerated = least + _TOLERATED * grounds.worth[trip.row].share * grounds.usual.alone_of(trip.row)
        familiar = self._lessons.familiar
        nominated = trip.nominated
        worker: Worker | None = None
        passed = 0
        for place in (0, 1):
            if nominated is not None:
                worker = nominated[place]
            else:
                worker = grounds.ring.lead(trip.second if place else trip.first, candidates, worker)
            if worker is None or worker not in candidates:
                continue
            index = candidates.index(worker)
            tempo = grounds.tempo_of(worker)
            if seconds[index] <= 0.0:
                seconds[index] = self._predicted(tempo, worker, trip.row, now)
            load = worker.inflight + tempo.hidden
            if load < bound * worker.weight and seconds[index] <= (
                tolerated if trip.by > PREFIX or familiar.met(trip.first ^ tempo.mark, now) else least
            ):
                self.decided["second" if place else "session" if trip.by == SESSION else "prefix"] += 1
                self.spilled += passed
                return index
            passed = 1
        self.spilled += passed
        self.decided["draw"] += 1
        return best

    def nominate(self, call: Call, eligible: Sequence[Worker]) -> Sequence[Worker]:
        """Where the call's keys lead among many workers, and some of the preferred region."""
        trip = self._aimed(call)
        grounds = self._lessons.grounds_of(call, eligible[0], trip)
        if grounds is None:
            return ()
        first, second = (None, None) if trip.first == NONE else grounds.lead(trip.first, trip.second, eligible)
        trip.nominated = first, second
        found = [worker for worker in (first, second) if worker is not None]
        if self._region is not None:
            near = grounds.near(eligible)
            if near:
                found += [near[int(random() * len(near))] for _ in range(min(_NEAR, MAX_CANDIDATES - len(found)))]
        return found

    def _aimed(self, call: Call) -> Trip:
        """What is kept of a call, with where it should go."""
        trip = self._lessons.trip_of(call)
        if not trip.aimed:
            trip.aimed = True
            trip.first, trip.second, trip.by = self._affinity.keys(call)
        return trip


def _excess(grounds: Grounds, worker: Worker, load: float) -> float:
    """How many times its share a worker has: what is known of it may be wrong, so not all calls may go there."""
    share = grounds.mean_load * max(worker.weight, 1.0)
    return (load + 1.0) / (share + 1.0) if load > share + 1.0 else 1.0
