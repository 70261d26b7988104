"""What becomes of calls, and what that teaches: kept for each call while it is under way, learnt when it has content.

What is not seen to its end teaches, too: a call that waited in vain would have taken longer still.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.plugins.route.affinity import NONE
from tailrace.plugins.route.familiar import Familiar
from tailrace.plugins.route.grounds import Grounds
from tailrace.plugins.route.trip import Flight, Trip
from tailrace.plugins.route.usual import row_of, tokens_of
from tailrace.proxy.fault import Whose
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.plugin import Key

if TYPE_CHECKING:
    from tailrace.plugins.route.settings import Config
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.fleet import Pool, Worker
    from tailrace.proxy.outcome import Outcome

_FULL: Final = 1.0
"""Seconds that a worker is full for which does not say how long."""


class Lessons:
    """One chain's in one process."""

    __slots__ = ("_decay", "_grounds", "_key", "_penalty", "_region", "backlog", "familiar", "now")

    def __init__(self, config: Config, now: Callable[[], float]) -> None:
        self.now = now
        self._key: Key[Trip] = Key("route")
        self.familiar = Familiar()
        self._grounds: dict[Pool, Grounds] = {}
        self._penalty = config.penalty
        self._decay = config.decay
        self._region = config.region
        self.backlog = 0
        """Tokens of prompts of calls that have no content yet."""

    def trip_of(self, call: Call) -> Trip:
        """What is kept of a call."""
        if self._key in call:
            return call[self._key]
        tokens = tokens_of(len(call.raw))
        call[self._key] = trip = Trip(tokens, row_of(tokens, call.stream))
        return trip

    def grounds_of(self, call: Call, worker: Worker, trip: Trip) -> Grounds | None:
        """Of the pool that a worker is of, as all candidates are; None where it has just been dismissed from it."""
        pools = worker.pools
        grounds = trip.grounds
        if grounds is None or grounds.pool not in pools:
            entry = call.entry
            if entry is not None and entry.pool in pools:
                pool = entry.pool
            elif pools:
                pool = pools[0]
            else:
                return None
            grounds = self._grounds.get(pool)
            if grounds is None:
                self._grounds[pool] = grounds = Grounds(pool, self._decay, self._region)
            trip.grounds = grounds
            trip.nominated = None  # those were of another pool, if any
        if grounds.pool.workers is not grounds.workers:
            grounds.follow()
        return grounds

    def chosen(self, call: Call, attempt: Attempt) -> bool:
        """An attempt is about to be sent: its prompt is work that its worker has before it. Always True."""
        worker = attempt.worker
        trip = self.trip_of(call)
        grounds = self.grounds_of(call, worker, trip)
        if grounds is None:
            return True
        vetoed = trip.flight(attempt.number)
        if vetoed is not None:
            self.backlog -= vetoed.land()
            trip.flights.remove(vetoed)
        tempo = grounds.tempo_of(worker)
        # The attempt itself is counted already.
        flight = Flight(tempo, attempt.number, trip.tokens, worker.inflight - 1 + tempo.hidden)
        trip.flights.append(flight)
        self.backlog += trip.tokens
        if trip.first != NONE:
            key, now = trip.first ^ tempo.mark, self.now()
            flight.met = self.familiar.met(key, now)
            self.familiar.visit(key, now)
        return True

    def committed(self, call: Call, attempt: Attempt) -> None:
        """An attempt has content to show."""
        flight = self._flight_of(call, attempt)
        if flight is None or not flight.flies:
            return
        self.backlog -= flight.land()
        trip = call[self._key]
        seconds = (attempt.first_content_ns - attempt.sent_ns) * 1e-9 - attempt.worker.connections.round_trip
        own = flight.tempo.observe(trip.row, trip.tokens, flight.ahead, flight.load, max(seconds, 1e-6), self.now())
        if trip.first != NONE and trip.grounds is not None:
            trip.grounds.worth[trip.row].note(own, flight.met)

    def ended(self, call: Call, attempt: Attempt, end: AttemptEnd) -> None:
        """An attempt is over, whoever ended it."""
        flight = self._flight_of(call, attempt)
        if flight is None:
            return
        now = self.now()
        if end is AttemptEnd.WON and attempt.sent_ns:
            flight.tempo.usual.ended(now - attempt.sent_ns * 1e-9)
        if flight.flies:
            self.backlog -= flight.land()
            if attempt.sent_ns:
                waited = now - attempt.sent_ns * 1e-9 - attempt.worker.connections.round_trip
                flight.tempo.waited(call[self._key].row, flight.ahead, flight.load, max(waited, 0.0), now)
        fault = attempt.fault
        if end is AttemptEnd.FAILED and fault is not None and fault.whose in (Whose.NETWORK, Whose.ENGINE):
            flight.tempo.blame(self._cost_of(fault, attempt), now)

    def _cost_of(self, fault: Fault, attempt: Attempt) -> float:
        """Seconds that a fault adds; a worker that is only full is believed."""
        if fault.kind == "overloaded" or (attempt.status in (429, 503) and not fault.sent):
            return min(self._penalty, _FULL if fault.retry_after is None else fault.retry_after)
        return self._penalty

    def completed(self, call: Call, outcome: Outcome) -> None:
        """A call is over: an attempt that another plugin vetoed had no end of its own."""
        if self._key in call:
            for flight in call[self._key].flights:
                self.backlog -= flight.land()

    def _flight_of(self, call: Call, attempt: Attempt) -> Flight | None:
        return call[self._key].flight(attempt.number) if self._key in call else None
