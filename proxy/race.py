"""The attempt engine: which worker is asked, when another one is, and which answer is shown.

Retries, hedges and fallbacks happen here and nowhere else, steered by the attempt policies of plugins. Invariants: at
most MAX_TRIES attempts a call; one winner; every attempt ends exactly once; after the end of the call none is open.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tailrace.proxy import sending
from tailrace.proxy.allowing import MAX_TRIES, allowed, others, strayed, untried
from tailrace.proxy.attempt import Attempt
from tailrace.proxy.choosing import without
from tailrace.proxy.fault import FAILURES, PREEMPTED, Failed, Fault, Reject, fault_of, most_useful, no_worker
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.plugin import Target
from tailrace.proxy.reply import Instead
from tailrace.proxy.runners import Runners

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

log: Final = logging.getLogger("tailrace")


class Race(Runners):
    """All attempts of one call: awaited, it is the committed one, or Failed with the fault most worth telling."""

    __slots__ = ("_unsent_retries", "_waits")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._unsent_retries = self._waits = 0

    def start(self) -> None:
        """Begin the first attempt."""
        if not self._start("first", None, fresh=False):
            if self._call.chain.pipeline.next_target:
                self._continue(None, self._faults[-1])
            self._unless_over()

    def recall(self, fault: Fault) -> bool:
        """End what runs with `fault`, to begin anew with `resume`; False where nothing would be left to begin with."""
        call = self._call
        if self.settled or self.winner is not None or len(call.tries) + call.tried_before >= MAX_TRIES:
            return False
        for attempt in self._running:
            attempt.fault = fault
        self.cancel()
        return True

    def resume(self) -> None:
        """Begin anew after a recall."""
        if not self.settled:
            self._call.stride.within(self._start_delayed, Target(why="requeue"), PREEMPTED, False)

    def expire(self, fault: Fault) -> None:
        """The call's own limit passed before anything was shown."""
        if self.winner is None:
            self.cancel()
            self._faults.append(fault)
            self._give_up()

    def failed(self, attempt: Attempt, fault: Fault) -> None:
        """An attempt ended without a commit."""
        self._call.stride.within(self._go_on, attempt, fault)

    def move(self, attempt: Attempt, fault: Fault) -> None:
        """Ask another worker in place of one that keeps the call waiting, where policies name one and allow it.

        The attempt ends with `fault` before the other is sent; where none can be had it goes on as it was.
        """
        self._call.stride.within(self._move, attempt, fault)

    def _move(self, attempt: Attempt, fault: Fault) -> None:
        if self.winner is not None or attempt not in self._running or self._delay is not None:
            return
        call = self._call
        if not others(call) and not others(call, attempt):
            return
        known = len(self._faults)
        try:
            target = self._next(None, fault)
            if target is None or target.reply is not None or not allowed(call, target.why):
                return
            other = self._chosen_elsewhere(attempt, target)
            if other is None:
                del self._faults[known:]
                return
            attempt.fault = fault
            self._faults.append(fault)
            self._end(attempt, AttemptEnd.FAILED)
            self._set_out(other)
        except FAILURES as error:
            self._break_off(error)
        self._unless_over()

    def _chosen_elsewhere(self, attempt: Attempt, target: Target) -> Attempt | None:
        """An attempt in place of one that waits, at nobody who was asked before."""
        call = self._call
        entry = call.entry
        assert entry is not None
        if target.worker is not None:
            return None if target.worker is attempt.worker else self._chosen(target.why, target)
        if target.model is not None:
            entry = call.chain.models.resolve(target.model) or entry
        elif target.pool is None and others(call, attempt):
            # What a fallback led to stays there, as long as there is somebody.
            entry, target = attempt.entry, Target(pool=strayed(attempt), why=target.why)
        among = entry.candidates if target.pool is None else target.pool.eligible
        return self._chosen(target.why, target, entry) if untried(call, among) else None

    def _go_on(self, attempt: Attempt, fault: Fault) -> None:
        attempt.fault = fault
        self._faults.append(fault)
        self._end(attempt, AttemptEnd.FAILED)
        if self.settled:
            return
        try:
            if sending.refuses_options(attempt, fault) and len(self._call.tries) < MAX_TRIES:
                again = self._chosen("retry", Target(worker=attempt.worker))
                if again is not None:
                    again.unasked = True
                    self._set_out(again)
                    return
            self._continue(attempt, fault)
        except FAILURES as error:
            self._break_off(error)
        self._unless_over()

    def _continue(self, attempt: Attempt | None, fault: Fault) -> None:
        """Start what policies want after a fault; `attempt` is None where there was nobody to ask."""
        fresh = fault.kind == "connection_lost"
        # A policy that names nobody who can be asked is asked again, but not for ever.
        for _ in range(MAX_TRIES):
            target = self._next(attempt, fault)
            if target is None:
                return
            if target.reply is not None:
                if not self._running and self._delay is None:
                    self.fail(Instead(target.reply))
                return
            if self._delay is not None or self._waits > MAX_TRIES or not allowed(self._call, target.why):
                return
            if target.delay > 0:
                self._waits += 1
                loop = self._call.client.loop
                self._delay = loop.call_later(target.delay, self._delay_over, target, fault, fresh)
                return
            if self._start(target.why, target, fresh=fresh):
                return
            attempt, fault, fresh = None, no_worker(self._call.model), False

    def _delay_over(self, target: Target, fault: Fault, fresh: bool) -> None:
        self._call.stride.within(self._start_delayed, target, fault, fresh)

    def _start_delayed(self, target: Target, fault: Fault, fresh: bool) -> None:
        self._delay = None
        try:
            if not self._start(target.why, target, fresh=fresh):
                self._continue(None, no_worker(self._call.model))
        except FAILURES as error:
            self._break_off(error)
        self._unless_over()

    def _unless_over(self) -> None:
        """Without an attempt that runs or is about to, the call has failed."""
        if not self._running and self._delay is None:
            self._give_up()

    def _next(self, attempt: Attempt | None, fault: Fault) -> Target | None:
        for next_target in self._call.chain.pipeline.next_target:
            try:
                target = next_target(self._call, self._call.tries, fault)
            except FAILURES as error:
                without(self._call, next_target, "next_target", error)
                continue
            if target is not None:
                return target
        # What a worker refused by itself it would refuse again: only another one may still be in time.
        if (
            attempt is not None
            and not fault.sent
            and not self._unsent_retries
            and (not attempt.status or others(self._call))
        ):
            self._unsent_retries += 1
            return Target()
        return None

    def _start(self, why: str, target: Target | None, *, fresh: bool) -> bool:
        attempt = self._chosen(why, target)
        if attempt is None:
            return False
        attempt.begin(fresh=fresh)
        if self._call.chain.pipeline.patience:
            self._await_patience()
        return True

    def _set_out(self, attempt: Attempt) -> None:
        """Begin an attempt that has been chosen before."""
        attempt.begin(fresh=False)
        if self._call.chain.pipeline.patience:
            self._await_patience()

    def _await_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        call = self._call
        shortest: float | None = None
        for patience in call.chain.pipeline.patience:
            try:
                wait = patience(call, call.tries)
                if wait is not None and (shortest is None or wait < shortest):
                    shortest = wait
            except FAILURES as error:
                without(call, patience, "patience", error)
        if shortest is not None:
            self._patience = call.client.loop.call_later(shortest, self._patience_over)

    def _patience_over(self) -> None:
        self._call.stride.within(self._hedge)

    def _hedge(self) -> None:
        self._patience = None
        if self.winner is None and self._running:
            try:
                if others(self._call) and allowed(self._call, "hedge"):
                    self._start("hedge", Target(), fresh=False)
            except FAILURES as error:
                self._break_off(error)
                self._give_up()

    def _break_off(self, error: BaseException) -> None:
        """A policy failed or refused: nothing that runs may go on."""
        self.cancel()
        if not isinstance(error, Reject | Failed):
            log.error("request %s cannot be tried again", self._call.id, exc_info=error)
        self._faults = [fault_of(error)]

    def _give_up(self) -> None:
        self._stop_timers()
        self.fail(Failed(most_useful(self._faults)))
