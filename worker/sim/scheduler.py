"""The engine's step loop: who waits, who runs, and when each next token is due."""

from __future__ import annotations

from collections.abc import Sequence as Many
from heapq import heappop, heappush
from random import Random

from tailrace.worker.sim.clock import Clock, Timer
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.prefix_cache import PrefixCache
from tailrace.worker.sim.sequence import STRUCK, Sequence
from tailrace.worker.sim.settings import SimSettings

_BURST = 16
"""Tokens that a sequence may say at one wake-up, where several are due."""


class Scheduler:
    """Runs up to `max_num_seqs` sequences, each on its own beat, from one timer.

    Everything due at a wake-up is said in that one pass; the event loop then writes each connection's tokens with
    one call. Prefill is one resource shared by all, so a burst of long prompts delays everybody's first token.
    """

    def __init__(self, settings: SimSettings, clock: Clock, metrics: Metrics, rng: Random) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._rng = rng
        self._itl = settings.itl_ms / 1000
        self._cache = PrefixCache(settings.block_size, settings.num_gpu_blocks)
        self._queue: list[tuple[int, int, Sequence]] = []
        self._due: list[tuple[float, int, Sequence]] = []
        self._running: dict[Sequence, None] = {}
        self._waiting: dict[Sequence, None] = {}
        self._order = 0
        self._prefill_free = 0.0
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._stepping = False
        self._frozen = False

    @property
    def running(self) -> int:
        """Sequences being computed."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """The part of the KV cache that running sequences hold."""
        return min(1.0, self._blocks_held() / self._settings.num_gpu_blocks)

    def adapters(self) -> tuple[set[str], set[str]]:
        """The adapters of the sequences that run and that wait."""
        running = {seq.adapter for seq in self._running}
        return running - {""}, {seq.adapter for seq in self._waiting} - {""}

    def fits(self, count: int) -> bool:
        """Whether so many more may be submitted."""
        limit = self._settings.max_num_queued_reqs
        return limit is None or self.running + self.waiting + count <= limit

    def submit(self, sequences: Many[Sequence]) -> None:
        """Queue sequences that arrive together."""
        now = self._clock.now()
        by_priority = self._settings.scheduling_policy == "priority"
        for seq in sequences:
            self._order += 1
            seq.order, seq.arrived = self._order, now
            self._waiting[seq] = None
            heappush(self._queue, (seq.sampling.priority if by_priority else 0, seq.order, seq))
        self._admit(now)
        self._arm()

    def cancel(self, seq: Sequence) -> None:
        """Free what a sequence holds at once; does nothing when it is over."""
        if not seq.done:
            self._leave(seq)
            self._admit(self._clock.now())
            self._arm()

    def freeze(self) -> None:
        """Say nothing more, ever; every sequence stays where it is."""
        self._frozen = True

    def kill(self) -> list[Sequence]:
        """Drop every sequence and return them."""
        lost = [*self._running, *self._waiting]
        self._frozen = True
        for seq in lost:
            seq.done = True
        self._running.clear()
        self._waiting.clear()
        return lost

    def _blocks_held(self) -> int:
        size = self._settings.block_size
        return sum(-(-(len(seq.prompt) + len(seq.ids)) // size) for seq in self._running)

    def _leave(self, seq: Sequence) -> None:
        seq.done = True
        self._waiting.pop(seq, None)
        if seq in self._running:
            del self._running[seq]
            self._cache.insert([*seq.prompt, *seq.ids], seq.cache_salt)

    def _admit(self, now: float) -> None:
        while self._queue and len(self._running) < self._settings.max_num_seqs and not self._frozen:
            seq = self._queue[0][2]
            if not seq.done:
                needed = -(-len(seq.prompt) // self._settings.block_size)
                if self._running and self._blocks_held() + needed > self._settings.num_gpu_blocks:
                    return
                del self._waiting[seq]
                self._running[seq] = None
                self._start(seq, now)
            heappop(self._queue)

    def _start(self, seq: Sequence, now: float) -> None:
        settings = self._settings
        seq.started = now
        seq.cached = self._cache.match(seq.prompt, seq.cache_salt)
        seq.created = len(seq.prompt) // settings.block_size * settings.block_size - seq.cached
        self._metrics.started(len(seq.prompt), seq.cached)
        begun = max(now, self._prefill_free)
        if settings.prefill_tokens_per_s > 0:
            begun += (len(seq.prompt) - seq.cached) / settings.prefill_tokens_per_s * seq.slow
            self._prefill_free = begun
        wait = settings.ttft_ms / 1000 * seq.slow
        if settings.ttft_jitter > 0:
            wait *= self._rng.lognormvariate(0, settings.ttft_jitter)
        heappush(self._due, (begun + wait, seq.order, seq))

    def _arm(self) -> None:
        if self._stepping or self._frozen or not self._due:
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
        if self._frozen:
            return
        self._stepping = True
        now = self._clock.now()
        horizon = now + self._clock.resolution
        again: list[tuple[float, int, Sequence]] = []
        said = 0
        while self._due and self._due[0][0] <= horizon and not self._frozen:
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
                if self._struck(seq):
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

    def _compute_only(self, seq: Sequence, now: float) -> None:
        if seq.fault is None or self._struck(seq):
            seq.first = seq.latest = now
            seq.finish_reason = "stop"
            self._finish(seq, now)

    def _first(self, seq: Sequence, now: float) -> None:
        seq.first = now
        self._cache.insert(seq.prompt, seq.cache_salt)
        self._metrics.ttft.observe(now - seq.arrived)

    def _said(self, seq: Sequence, now: float, count: int, gap: float) -> None:
        seq.latest = now
        self._metrics.generation_tokens += count
        if count and len(seq.ids) > count:
            self._metrics.itl.observe(gap / count, count)

    def _struck(self, seq: Sequence) -> bool:
        """Whether the sequence goes on after its fault."""
        fault, seq.fault = seq.fault, None
        seq.remark()
        if fault is None:
            return True
        seq.sink.on_strike(seq, fault)
        return fault.fail == "garbage_event" and not seq.done

    def _finish(self, seq: Sequence, now: float) -> None:
        seq.finished = now
        self._leave(seq)
        self._metrics.finished(seq)
        seq.sink.on_finish(seq)
        self._admit(now)
