"""The attempt engine: which worker is asked, when another one is, and which answer is shown.

Retries, hedges and fallbacks happen here and nowhere else, steered by the attempt policies of plugins. Invariants: at
most MAX_TRIES attempts a call; one winner; every attempt ends exactly once; after the end of the call none is open.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tailrace.proxy import sending
from tailrace.proxy.attempt import Attempt
from tailrace.proxy.fault import FAILURES, Failed, Fault, Reject, Whose, fault_of, no_worker
from tailrace.proxy.fleet import MAX_CANDIDATES
from tailrace.proxy.mishap import go_on_without, note
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.plugin import Target
from tailrace.proxy.signal import Signal

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.pipeline import Scorer

log: Final = logging.getLogger("tailrace")
MAX_TRIES: Final = 3


class Race(Signal[Attempt]):
    """All attempts of one call: awaited, it is the committed one, or Failed with the fault most worth telling."""

    __slots__ = ("_call", "_faults", "_patience", "_running", "_unsent_retries", "winner")

    def __init__(self, call: Call) -> None:
        self.settled = False
        self.stride = None
        self._error = None
        self._call = call
        self._running: list[Attempt] = []
        self._faults: list[Fault] = []
        self._unsent_retries = 0
        self._patience: asyncio.TimerHandle | None = None
        self.winner: Attempt | None = None

    def start(self) -> None:
        """Begin the first attempt."""
        if not self._start("first", None, fresh=False):
            self._give_up()

    def cancel(self) -> None:
        """End whatever runs; the client is gone or the call is over."""
        if self._patience is not None:
            self._stop_patience()
        if self._running:
            self._call.stride.within(self._cancel_running)

    def _cancel_running(self) -> None:
        while self._running:
            self._end(self._running[0], AttemptEnd.CANCELLED)

    def expire(self, fault: Fault) -> None:
        """The call's own limit passed before anything was shown."""
        if self.winner is None:
            self.cancel()
            self._faults.append(fault)
            self._give_up()

    def committed(self, attempt: Attempt) -> None:
        """An attempt may be shown: it wins, the others are cancelled."""
        self.winner = attempt
        if self._patience is not None:
            self._stop_patience()
        self._running.remove(attempt)
        if self._running:
            self._call.stride.within(self._cancel_running)
        self.set(attempt)

    def finished(self, attempt: Attempt, end: AttemptEnd) -> None:
        """The winner's relay is over."""
        attempt.worker.inflight -= 1
        attempt.end = end
        if self._call.chain.pipeline.on_attempt_end:
            self._tell(attempt, end)

    def failed(self, attempt: Attempt, fault: Fault) -> None:
        """An attempt ended without a commit."""
        self._call.stride.within(self._go_on, attempt, fault)

    def _go_on(self, attempt: Attempt, fault: Fault) -> None:
        attempt.fault = fault
        self._faults.append(fault)
        self._end(attempt, AttemptEnd.FAILED)
        if self.settled:
            return
        try:
            if sending.refuses_options(attempt, fault) and len(self._call.tries) < MAX_TRIES:
                attempt.worker.strict = True
                if self._start("retry", Target(worker=attempt.worker), fresh=False):
                    return
            target = self._next(attempt, fault)
            fresh = fault.kind == "connection_lost"
            if target is not None and self._allowed("retry") and self._start("retry", target, fresh=fresh):
                return
        except FAILURES as error:
            self._break_off(error)
        if not self._running:
            self._give_up()

    def _next(self, attempt: Attempt, fault: Fault) -> Target | None:
        for next_target in self._call.chain.pipeline.next_target:
            try:
                target = next_target(self._call, self._call.tries, fault)
            except FAILURES as error:
                self._go_on_without(next_target, "next_target", error)
                continue
            if target is not None:
                return target
        # What a worker refused by itself it would refuse again: only another one may still be in time.
        if not fault.sent and not self._unsent_retries and (not attempt.status or self._others()):
            self._unsent_retries += 1
            return Target()
        return None

    def _others(self) -> bool:
        """Whether there is a worker that has not been asked yet."""
        call = self._call
        if call.pinned is not None or call.entry is None:
            return False
        tried = [attempt.worker for attempt in call.tries]
        return any(worker not in tried for worker in call.entry.candidates)

    def _allowed(self, why: str) -> bool:
        call = self._call
        if len(call.tries) + call.tried_before >= MAX_TRIES:
            return False
        for allow in call.chain.pipeline.allow:
            try:
                if not allow(call, call.tries, why):
                    return False
            except FAILURES as error:
                self._go_on_without(allow, "allow", error)
        return True

    def _start(self, why: str, target: Target | None, *, fresh: bool) -> bool:
        call = self._call
        entry = call.entry
        assert entry is not None
        if target is not None and target.model is not None:
            entry = call.chain.models.resolve(target.model) or entry
        candidates: Sequence[Worker]
        if call.pinned is not None:
            candidates = (call.pinned,) if call.pinned.reachable else ()
        elif target is None:
            candidates = entry.candidates if len(entry.candidates) <= MAX_CANDIDATES else entry.draw()
        elif target.worker is not None:
            candidates = (target.worker,)
        elif target.pool is not None:
            candidates = target.pool.eligible
        else:
            candidates = entry.draw([attempt.worker for attempt in call.tries])
        while candidates:
            worker = self._choose(candidates, call.chain.pipeline.score_workers)
            if worker is None:
                break
            attempt = Attempt(self, call, entry, worker, len(call.tries) + 1, why)
            worker.inflight += 1
            if not call.chain.pipeline.on_chosen or self._agreed(attempt):
                call.tries.append(attempt)
                self._running.append(attempt)
                attempt.begin(fresh=fresh)
                if call.chain.pipeline.patience:
                    self._await_patience()
                return True
            worker.inflight -= 1
            candidates = [other for other in candidates if other is not worker]
        if not self._faults:
            self._faults.append(no_worker(call.model, why=entry.why_nobody))
        return False

    def _agreed(self, attempt: Attempt) -> bool:
        for chosen in self._call.chain.pipeline.on_chosen:
            try:
                if not chosen(self._call, attempt):
                    return False
            except FAILURES as error:
                try:
                    self._go_on_without(chosen, "on_chosen", error)
                except BaseException:
                    attempt.worker.inflight -= 1
                    raise
        return True

    def _go_on_without(self, policy: Callable[..., object], phase: str, error: BaseException) -> None:
        go_on_without(self._call, self._call.chain.pipeline.owners[policy], phase, error)

    def _choose(self, candidates: Sequence[Worker], scorers: tuple[Scorer, ...]) -> Worker | None:
        if not scorers:
            return candidates[int(random.random() * len(candidates))]
        if len(candidates) == 1:
            for _, score in scorers:
                try:
                    if score(self._call, candidates)[0] < 0:
                        return None
                except FAILURES as error:
                    self._go_on_without(score, "score_workers", error)
            return candidates[0]
        totals = [0.0] * len(candidates)
        for weight, score in scorers:
            try:
                for index, value in enumerate(score(self._call, candidates)):
                    totals[index] += weight * value if value >= 0 else float("-inf")
            except FAILURES as error:
                self._go_on_without(score, "score_workers", error)
                return self._choose(candidates, tuple([other for other in scorers if other[1] is not score]))
        best = max(totals)
        if best == float("-inf"):
            return None
        ties = [worker for worker, total in zip(candidates, totals, strict=True) if total == best]
        return ties[0] if len(ties) == 1 else ties[int(random.random() * len(ties))]

    def _await_patience(self) -> None:
        self._stop_patience()
        call = self._call
        shortest: float | None = None
        for patience in call.chain.pipeline.patience:
            try:
                wait = patience(call, call.tries)
                if wait is not None and (shortest is None or wait < shortest):
                    shortest = wait
            except FAILURES as error:
                self._go_on_without(patience, "patience", error)
        if shortest is not None:
            self._patience = call.client.loop.call_later(shortest, self._patience_over)

    def _patience_over(self) -> None:
        self._call.stride.within(self._hedge)

    def _hedge(self) -> None:
        self._patience = None
        if self.winner is None and self._running:
            try:
                if self._allowed("hedge"):
                    self._start("hedge", Target(), fresh=False)
            except FAILURES as error:
                self._break_off(error)
                self._give_up()

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _end(self, attempt: Attempt, end: AttemptEnd) -> None:
        self._running.remove(attempt)
        attempt.release()
        attempt.worker.inflight -= 1
        attempt.end = end
        self._tell(attempt, end)

    def _tell(self, attempt: Attempt, end: AttemptEnd) -> None:
        for hook in self._call.chain.pipeline.on_attempt_end:
            try:
                hook(self._call, attempt, end)
            except FAILURES as error:
                note(self._call, self._call.chain.pipeline.owners[hook].name, "on_attempt_end", error)

    def _break_off(self, error: BaseException) -> None:
        """A policy failed or refused: nothing that runs may go on."""
        self.cancel()
        if not isinstance(error, Reject | Failed):
            log.error("request %s cannot be tried again", self._call.id, exc_info=error)
        self._faults = [fault_of(error)]

    def _give_up(self) -> None:
        self._stop_patience()
        self.fail(Failed(most_useful(self._faults)))


def most_useful(faults: Sequence[Fault]) -> Fault:
    """The fault that tells the client most: what is wrong with its request, then when to retry, then the last."""
    for fault in faults:
        if fault.whose is Whose.CLIENT:
            return fault
    for fault in faults:
        if fault.status == 429:
            return fault
    return faults[-1]
