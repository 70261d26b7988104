"""Counts where the time of calls went: one observation a stage that a call had.

Four or five a call are too many for memory that others read: they are gathered here, and written there now and then.

Labels come from fixed or configured sets. `state` is what was known of the worker when the call ended, `failure` the
kind of the first fault that the call met, its own or an attempt's.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from tailrace.proxy.metrics import catalogue
from tailrace.proxy.metrics.catalogue import STAGE_BOUNDS
from tailrace.proxy.service_class import ServiceClass
from tailrace.proxy.stages import NAMES, stages_of

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.metrics.register import Register
    from tailrace.proxy.outcome import Outcome

_MOST_REMEMBERED: Final = 4096
_NOT_YET: Final = -1
_HEALTHY: Final = "ready"
_NONE: Final = "none"
# In nanoseconds: what calls take is counted in whole ones.
_BOUNDS: Final[list[int]] = [round(bound * 1e9) for bound in STAGE_BOUNDS]
Labels = tuple[str, str, str, str, str, str]


class _Gathered:
    """What has been observed of one stage, under one set of labels, since it was written last."""

    __slots__ = ("at", "counts", "stage", "took", "unwritten")

    def __init__(self, stage: int) -> None:
        self.stage = stage
        self.at = _NOT_YET
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.took = 0
        self.unwritten = False


class StageCounts:
    """The distributions of stages of one process; what is counted is seen by others from the next `write` on."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self._gathered: dict[Labels, list[_Gathered]] = {}
        self._unwritten: list[tuple[Labels, _Gathered]] = []
        self.at_once = False
        """Whether each call is written as it is counted, for nobody writes any more."""

    def count(self, call: Call, outcome: Outcome, model: str) -> None:
        """Count a call that has asked a worker, once; `model` is its label."""
        tries = call.tries
        race = call.race
        shown = tries[-1] if race is None or race.winner is None else race.winner
        worker = shown.worker
        fact = call.fact(ServiceClass)
        failure = _NONE
        if outcome.fault is not None or len(tries) > 1:
            failure = _failure_of(call, outcome)
        labels = (
            model,
            _NONE if fact is None else fact.name,
            worker.region,
            call.route.name,
            _HEALTHY if not worker.bars and worker.standing.takes_calls and not worker.drained else state_of(worker),
            failure,
        )
        gathered = self._gathered.get(labels)
        if gathered is None:
            gathered = self._new(labels)
        stages = outcome.stages = stages_of(call, outcome.finished_ns)
        if stages.client_edge:
            self._note(gathered[0], stages.client_edge, labels)
        self._note(gathered[1], stages.gateway, labels)
        if stages.queue:
            self._note(gathered[2], stages.queue, labels)
        if stages.retry:
            self._note(gathered[3], stages.retry, labels)
        if stages.network:
            self._note(gathered[4], stages.network, labels)
        if stages.prefill:
            self._note(gathered[5], stages.prefill, labels)
        if stages.decode:
            self._note(gathered[6], stages.decode, labels)
        if self.at_once:
            self.write()

    def write(self) -> None:
        """Let others see what was counted."""
        slots = self._register.segment.slots
        for labels, gathered in self._unwritten:
            at = gathered.at
            if at < 0:
                at = gathered.at = self._register.series(catalogue.STAGES, (NAMES[gathered.stage], *labels))
            slots[at] += gathered.took * 1e-9
            for bucket, count in enumerate(gathered.counts):
                if count:
                    slots[at + 1 + bucket] += count
                    gathered.counts[bucket] = 0
            gathered.took = 0
            gathered.unwritten = False
        self._unwritten.clear()

    def _new(self, labels: Labels) -> list[_Gathered]:
        if len(self._gathered) >= _MOST_REMEMBERED:
            self.write()
            self._gathered.clear()
        gathered = self._gathered[labels] = [_Gathered(stage) for stage in range(len(NAMES))]
        return gathered

    def _note(self, gathered: _Gathered, took: int, labels: Labels) -> None:
        gathered.took += took
        gathered.counts[bisect_left(_BOUNDS, took)] += 1
        if not gathered.unwritten:
            gathered.unwritten = True
            self._unwritten.append((labels, gathered))


def state_of(worker: Worker) -> str:
    """What speaks against a worker: a bar, or its own standing."""
    for bar in worker.bars:
        return bar
    standing = worker.standing
    if standing.dead:
        return "dead"
    if standing.draining or worker.drained:
        return "draining"
    return _HEALTHY if standing.ready else "unready"


def _failure_of(call: Call, outcome: Outcome) -> str:
    for attempt in call.tries:
        if attempt.fault is not None:
            return attempt.fault.kind
    return _NONE if outcome.fault is None else outcome.fault.kind
