"""The plain pace: every sequence on a beat of its own, however many there are."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from random import Random

from tailrace.worker.sim.clock import Clock
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.scheduler import Scheduler
from tailrace.worker.sim.sequence import STRUCK, Sequence
from tailrace.worker.sim.settings import SimSettings

_BURST = 16
"""Tokens that a sequence may say at one wake-up, where several are due."""


class Beats(Scheduler):
    """Says everything due at a wake-up in one pass; the loop then writes each connection's tokens with one call.

    Prefill is one resource shared by all, so a burst of long prompts delays everybody's first token.
    """

    def __init__(self, settings: SimSettings, clock: Clock, metrics: Metrics, rng: Random) -> None:
        super().__init__(settings, clock, metrics, rng)
        self._itl = settings.itl_ms / 1000
        self._due: list[tuple[float, int, Sequence]] = []
        self._prefill_free = 0.0
        self._timer_at = 0.0
        self._stepping = False

    @property
    def kv_usage(self) -> float:
        """The part of the KV cache that running sequences hold."""
        return min(1.0, self._blocks_held() / self._settings.num_gpu_blocks)

    def slow_down(self, factor: float) -> None:
        """From now on take so many times as long for everything, for those that run too."""
        super().slow_down(factor)
        self._itl = self._settings.itl_ms / 1000 * factor

    def _blocks_held(self) -> int:
        size = self._settings.block_size
        return sum(-(-(len(seq.prompt) + len(seq.ids)) // size) for seq in self._running)

    def _admit(self, now: float) -> None:
        size = self._settings.block_size
        while len(self._running) < self._settings.max_num_seqs and not self._still():
            seq = self._next()
            if seq is None:
                return
            needed = -(-len(seq.prompt) // size)
            if self._running and self._blocks_held() + needed > self._settings.num_gpu_blocks:
                return
            self._dequeue()
            self._start(seq, now)

    def _start(self, seq: Sequence, now: float) -> None:
        settings = self._settings
        self._look_up(seq, now)
        slow = seq.slow * self._slowness
        begun = max(now, self._prefill_free)
        if settings.prefill_tokens_per_s > 0:
            begun += (len(seq.prompt) - seq.cached) / settings.prefill_tokens_per_s * slow
            self._prefill_free = begun
        wait = settings.ttft_ms / 1000 * slow
        if settings.ttft_jitter > 0:
            wait *= self._rng.lognormvariate(0, settings.ttft_jitter)
        heappush(self._due, (begun + wait, seq.order, seq))

    def _shift(self, seconds: float) -> None:
        self._due = [(due + seconds, order, seq) for due, order, seq in self._due]
        heapify(self._due)
        self._prefill_free += seconds

    def _postpone(self, seq: Sequence, until: float) -> None:
        heappush(self._due, (until, seq.order, seq))

    def _arm(self) -> None:
        if self._stepping or self._still() or not self._due:
            return
        when = self._due[0][0]
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._clock.call_at(when, self._step)

    def _step(self) -> None:
        """Say all that is due."""
        self._timer = None
        if self._still():
            return
        self._stepping = True
        now = self._clock.now()
        horizon = now + self._clock.resolution
        again: list[tuple[float, int, Sequence]] = []
        said = 0
        while self._due and self._due[0][0] <= horizon and not self._still():
            due, _, seq = heappop(self._due)
            if not seq.done:
                said += self._say(seq, now, due, again)
        for item in again:
            heappush(self._due, item)
        if said:
            self._metrics.iteration.observe(said)
        self._stepping = False
        self._arm()

    def _say(self, seq: Sequence, now: float, due: float, again: list[tuple[float, int, Sequence]]) -> int:
        """Let one sequence say what it owes, and book its next turn if there is one; returns how much it said."""
        if not seq.sampling.max_tokens:
            self._compute_only(seq, now)
            return 0
        beat = self._itl * seq.slow
        owed = 1
        if seq.ids:
            owed = min(_BURST, 1 + int((now - due) / beat)) if beat else _BURST
        sink, count, gap = seq.sink, 0, now - seq.latest
        while count < owed:
            token = seq.advance()
            if token == STRUCK:
                if self._struck(seq, now):
                    continue
                self._said(seq, now, count, gap)
                return count
            count += 1
            if len(seq.ids) == 1:
                self._first(seq, now)
            sink.on_token(seq, token)
            if seq.done or seq.finish_reason is not None:
                break
        self._said(seq, now, count, gap)
        if seq.done:
            return count
        if seq.finish_reason is not None:
            self._finish(seq, now)
        else:
            again.append((due + count * beat if beat else now, seq.order, seq))
        return count
