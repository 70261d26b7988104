"""Counts calls as they end: once a call, with a handful of additions to slots that were looked up before.

Nothing is formatted here and nothing is created after the first call of its kind. Attempts and their faults are
counted with their call, so the attempt engine knows nothing of metrics.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import Whose
from tailrace.proxy.metrics import catalogue
from tailrace.proxy.metrics.catalogue import DURATION_BOUNDS, FIRST_TOKEN_BOUNDS, OVERHEAD_BOUNDS, code_of
from tailrace.proxy.metrics.failing import Failing
from tailrace.proxy.metrics.generation import GenerationCounts
from tailrace.proxy.metrics.stages import StageCounts
from tailrace.proxy.outcome import AttemptEnd, Ending

if TYPE_CHECKING:
    from collections.abc import Collection

    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.metrics.register import Register
    from tailrace.proxy.outcome import Outcome

UNKNOWN: Final = "unknown"
REFUSED: Final = "refused"
"""How an attempt ended whose client is to blame."""
UNPARSED: Final = "unparsed"
"""The route of what was refused before it became a call."""

_MOST_REMEMBERED: Final = 16384
_NOT_YET: Final = -1


class _Slots:
    """Where the calls of one route, model and end are counted; distributions get theirs at first use."""

    __slots__ = ("duration", "first_token", "labels", "overhead", "requests")

    def __init__(self, requests: int, labels: tuple[str, str]) -> None:
        self.requests = requests
        self.labels = labels
        self.duration = self.first_token = self.overhead = _NOT_YET


class CallCounts:
    """The counters and distributions of calls, attempts and faults of one process."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self._slots = register.segment.slots
        self.stages = StageCounts(register)
        self._generation = GenerationCounts(register)
        self._calls: dict[tuple[str, str, str, int], _Slots] = {}
        self._attempts: dict[tuple[str, str | None, str], int] = {}
        self._client_gone = register.series(catalogue.CLIENT_GONE, ())
        self._failing = Failing(self._ended_at)
        self._streams_cut = register.series(catalogue.STREAMS_CUT, ())

    def completed(self, call: Call, outcome: Outcome) -> None:
        """Count a call that is over, once."""
        slots = self._slots
        entry = call.entry
        model = UNKNOWN if entry is None else entry.name
        kind = (call.route.name, model, outcome.ending, outcome.status)
        its = self._calls.get(kind)
        if its is None:
            its = self._learn(kind, known_model(call))
        slots[its.requests] += 1.0
        tries = call.tries
        smooth = outcome.ending is Ending.COMPLETED and len(tries) < 2
        if tries:
            if its.duration < 0:
                self._learn_distributions(its)
            finished = outcome.finished_ns
            seconds = (finished - call.started_ns) * 1e-9
            at = its.duration
            slots[at] += seconds
            slots[at + 1 + bisect_left(DURATION_BOUNDS, seconds)] += 1.0
            attempt = tries[0]
            if attempt.sent_ns:
                arrived = call.received_ns or call.started_ns
                overhead = attempt.sent_ns - arrived - call.waited_ns
                first = outcome.first_content_ns
                if first:
                    winner = attempt if len(tries) == 1 else call.race.winner  # type: ignore[union-attr]
                    if winner.streaming:  # type: ignore[union-attr]
                        self._first_token(its, (first - arrived) * 1e-9)
                    elif winner.held:  # type: ignore[union-attr]
                        # A whole answer that was not streamed through: from its last byte on, the time is ours.
                        overhead += finished - first
                seconds = overhead * 1e-9
                at = its.overhead
                slots[at] += seconds
                slots[at + 1 + bisect_left(OVERHEAD_BOUNDS, seconds)] += 1.0
            self.stages.count(call, outcome, its.labels[1])
            if outcome.usage is not None:
                self._generation.count(call, outcome, its.labels[1])
            attempts = self._attempts
            for attempt in tries:
                end = attempt.end if smooth else _end_of(attempt, outcome)
                ended = (attempt.worker.name, end, attempt.why)
                place = attempts.get(ended)
                slots[self._learn_attempt(ended) if place is None else place] += 1.0
        if not smooth:
            self._count_faults(call, outcome)

    def refused(self, fault: Fault) -> None:
        """Count a request that never became a call."""
        kind = (UNPARSED, UNKNOWN, Ending.REFUSED, fault.status)
        self._slots[(self._calls.get(kind) or self._learn(kind, UNKNOWN)).requests] += 1.0
        self._fault(fault)

    def turned_away(self, reason: str, times: float = 1.0) -> None:
        """Count a connection that was closed before its first request."""
        self._slots[self._register.series(catalogue.CONNECTIONS_REFUSED, (reason,))] += times

    def plugin_failed(self, name: str) -> None:
        """Count a failure of a plugin."""
        self._slots[self._register.series(catalogue.PLUGIN_FAILURES, (name,))] += 1.0

    def suspected(self, worker: str, evidence: str) -> None:
        """Count a worker that became suspect."""
        self._slots[self._register.series(catalogue.SUSPECTED, (worker, evidence))] += 1.0

    def forget_workers(self, names: Collection[str]) -> None:
        """Retire the series of workers that are gone for good and have no attempt running."""
        for name in names:
            self._failing.forget(name)
        for ended in [ended for ended in self._attempts if ended[0] in names]:
            del self._attempts[ended]
        for family in (catalogue.ATTEMPTS, catalogue.SUSPECTED):
            for values in self._register.names(family):
                if values[0] in names:
                    self._register.retire(family, values)

    def _first_token(self, its: _Slots, seconds: float) -> None:
        if its.first_token < 0:
            its.first_token = self._register.series(catalogue.FIRST_TOKEN, its.labels)
        slots, at = self._slots, its.first_token
        slots[at] += seconds
        slots[at + 1 + bisect_left(FIRST_TOKEN_BOUNDS, seconds)] += 1.0

    def _count_faults(self, call: Call, outcome: Outcome) -> None:
        last = outcome.fault
        for attempt in call.tries:
            fault = attempt.fault
            if fault is not None:
                self._failing.note(attempt, fault)
                if fault is not last:
                    self._fault(fault)
        if last is not None:
            self._fault(last)
        if outcome.ending is Ending.CLIENT_GONE:
            self._slots[self._client_gone] += 1.0
        elif outcome.ending is not Ending.COMPLETED:
            head = call.answered_head
            if head is not None and head.status < 400:
                self._slots[self._streams_cut] += 1.0

    def _fault(self, fault: Fault) -> None:
        self._slots[self._register.series(catalogue.FAULTS, (fault.kind, str(fault.whose)))] += 1.0

    def _ended_at(self, worker: str) -> float:
        return sum(self._slots[place] for (name, *_), place in self._attempts.items() if name == worker)

    def _learn(self, kind: tuple[str, str, str, int], model: str) -> _Slots:
        if len(self._calls) >= _MOST_REMEMBERED:
            self._calls.clear()
        route, _, ending, status = kind
        values = (route, model, str(ending), code_of(status))
        its = self._calls[kind] = _Slots(self._register.series(catalogue.REQUESTS, values), (route, model))
        return its

    def _learn_distributions(self, its: _Slots) -> None:
        its.duration = self._register.series(catalogue.DURATION, its.labels)
        its.overhead = self._register.series(catalogue.OVERHEAD, its.labels[:1])

    def _learn_attempt(self, ended: tuple[str, str | None, str]) -> int:
        if len(self._attempts) >= _MOST_REMEMBERED:
            self._attempts.clear()
        worker, end, why = ended
        # Shown from 0: a counter that begins above it alarms nobody.
        self._register.series(catalogue.ATTEMPTS, (worker, str(AttemptEnd.FAILED), why))
        place = self._register.series(catalogue.ATTEMPTS, (worker, str(end), why))
        self._attempts[ended] = place
        return place


def _end_of(attempt: Attempt, outcome: Outcome) -> str | None:
    """How an attempt ended, as a label: neither a client that leaves nor what it asked for is a worker's failure."""
    fault = attempt.fault
    if fault is None:
        return AttemptEnd.CANCELLED if outcome.ending is Ending.CLIENT_GONE else attempt.end
    return REFUSED if fault.whose is Whose.CLIENT else attempt.end


def known_model(call: Call) -> str:
    """The model as a label: a name that clients may use, not one that they made up nor a path that is forwarded."""
    entry, models = call.entry, call.chain.models
    if entry is None or not (entry.name in models.entries or entry.name in models.adapters):
        return UNKNOWN
    return entry.name
