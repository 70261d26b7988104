"""The attempts of one call that are under way: chosen, begun, ended, each exactly once."""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, cast

from tailrace.proxy.allowing import allowed, others, strayed
from tailrace.proxy.attempt import Attempt
from tailrace.proxy.choosing import agreed, candidates_for, choose
from tailrace.proxy.fault import FAILURES, Fault, no_worker
from tailrace.proxy.mishap import note
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.plugin import Target
from tailrace.proxy.signal import Signal

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import ModelEntry
    from tailrace.proxy.race import Race

SILENT: Final = frozenset({"gap_timeout", "suspect"})
"""Faults of workers that may be there still."""


class Runners(Signal[Attempt]):
    """What a race counts: `winner` is the attempt that is shown, or was last where its worker was lost."""

    __slots__ = ("_call", "_delay", "_faults", "_heir", "_patience", "_running", "winner")

    def __init__(self, call: Call) -> None:
        self.settled = False
        self.stride = None
        self._error = None
        self._call = call
        self._running: list[Attempt] = []
        self._faults: list[Fault] = []
        self._patience: asyncio.TimerHandle | None = None
        self._delay: asyncio.TimerHandle | None = None
        self._heir: Attempt | None = None
        self.winner: Attempt | None = None

    def _chosen(self, why: str, target: Target | None, entry: ModelEntry | None = None) -> Attempt | None:
        """An attempt at the best of the workers that may have it, of the call's own model where none is given."""
        call = self._call
        if entry is None:
            entry = call.entry
        assert entry is not None
        if target is not None and target.model is not None:
            entry = call.chain.models.resolve(target.model) or entry
        candidates = candidates_for(call, entry, target)
        pipeline = call.chain.pipeline
        while candidates:
            worker = choose(call, candidates, pipeline.score_workers)
            if worker is None:
                break
            attempt = Attempt(cast("Race", self), call, entry, worker, len(call.tries) + 1, why)
            worker.inflight += 1
            try:
                taken = not pipeline.on_chosen or agreed(call, attempt)
            except BaseException:
                worker.inflight -= 1
                raise
            if taken:
                call.tries.append(attempt)
                self._running.append(attempt)
                return attempt
            worker.inflight -= 1
            candidates = [other for other in candidates if other is not worker]
        if not self._faults:
            self._faults.append(no_worker(call.model, why=entry.why_nobody))
        return None

    def committed(self, attempt: Attempt) -> None:
        """An attempt may be shown: it wins, the others are cancelled."""
        self.winner = attempt
        self._stop_timers()
        self._running.remove(attempt)
        if self._running:
            self._call.stride.within(self._cancel_running)
        if self._faults and attempt.unasked:
            attempt.worker.strict = True  # with the same request, but for what plugins had added, it is content
        if self._call.chain.pipeline.on_commit:
            self._call.stride.within(self._tell_of_commit, attempt)
        self.set(attempt)

    def _tell_of_commit(self, attempt: Attempt) -> None:
        for hook in self._call.chain.pipeline.on_commit:
            try:
                hook(self._call, attempt)
            except FAILURES as error:
                self._note(hook, "on_commit", error)

    def finished(self, attempt: Attempt, end: AttemptEnd) -> None:
        """The winner's relay is over, or another worker goes on with its stream."""
        if attempt.end is not None:
            return
        attempt.worker.inflight -= 1
        attempt.end = end
        if self._call.chain.pipeline.on_attempt_end:
            self._tell(attempt, end)

    def pass_on(self, fault: Fault) -> Attempt | None:
        """An attempt that may go on with the winner's stream, yet to be begun."""
        winner = self.winner
        assert winner is not None
        # Whoever is only silent would be asked twice at once.
        if fault.kind in SILENT and not others(self._call, winner):
            return None
        self._call.stride.within(self._choose_heir, winner)
        return self._chosen_heir()

    def lost(self, fault: Fault) -> None:
        """The winner is not waited for any longer: another one goes on with its stream, if anybody does."""
        winner = self.winner
        if winner is not None and winner.end is None:
            winner.fault = fault
            winner.ended_ns = monotonic_ns()
            self._call.stride.within(self.finished, winner, AttemptEnd.FAILED)

    def _choose_heir(self, winner: Attempt) -> None:
        if allowed(self._call, "rescue"):
            # What a fallback led to goes on there.
            self._heir = self._chosen("rescue", Target(pool=strayed(winner)), winner.entry)

    def _chosen_heir(self) -> Attempt | None:
        heir, self._heir = self._heir, None
        return heir

    def taken_over(self, attempt: Attempt) -> None:
        """An attempt goes on with the stream: it is the winner now."""
        attempt.first_content_ns = monotonic_ns()
        self._running.remove(attempt)
        self.winner = attempt
        if self._call.chain.pipeline.on_commit:
            self._call.stride.within(self._tell_of_commit, attempt)

    def drop(self, attempt: Attempt, fault: Fault | None = None) -> None:
        """End an attempt that was to go on with the stream."""
        if attempt in self._running:
            attempt.fault = fault
            end = AttemptEnd.CANCELLED if fault is None else AttemptEnd.FAILED
            self._call.stride.within(self._end, attempt, end)

    def cancel(self) -> None:
        """End whatever runs; the client is gone or the call is over."""
        self._stop_timers()
        if self._running:
            self._call.stride.within(self._cancel_running)

    def _cancel_running(self) -> None:
        while self._running:
            self._end(self._running[0], AttemptEnd.CANCELLED)

    def _stop_timers(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None

    def _end(self, attempt: Attempt, end: AttemptEnd) -> None:
        self._running.remove(attempt)
        attempt.release()
        attempt.ended_ns = monotonic_ns()
        attempt.worker.inflight -= 1
        attempt.end = end
        self._tell(attempt, end)

    def _tell(self, attempt: Attempt, end: AttemptEnd) -> None:
        for hook in self._call.chain.pipeline.on_attempt_end:
            try:
                hook(self._call, attempt, end)
            except FAILURES as error:
                self._note(hook, "on_attempt_end", error)

    def _note(self, hook: object, phase: str, error: BaseException) -> None:
        note(self._call, self._call.chain.pipeline.owners[hook].name, phase, error)
