"""Who waits and who runs in the engine, and what becomes of those that leave it; the pace is left to others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence as Many
from heapq import heappop, heappush
from random import Random

from tailrace.worker.sim.clock import Clock, Timer
from tailrace.worker.sim.failures import Fault
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.prefix_cache import PrefixCache
from tailrace.worker.sim.sequence import Sequence
from tailrace.worker.sim.settings import SimSettings


class Scheduler(ABC):
    """Runs up to `max_num_seqs` sequences from one timer; the next in line is that of the lowest priority number."""

    def __init__(self, settings: SimSettings, clock: Clock, metrics: Metrics, rng: Random) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._rng = rng
        self._cache = PrefixCache(settings.block_size, settings.num_gpu_blocks)
        self._queue: list[tuple[int, int, Sequence]] = []
        self._running: dict[Sequence, None] = {}
        self._waiting: dict[Sequence, None] = {}
        self._order = 0
        self._timer: Timer | None = None
        self._frozen = False
        """For good: a hung or dead engine says nothing more."""
        self._paused_at: float | None = None
        self._slowness = 1.0

    @property
    def running(self) -> int:
        """Sequences being computed."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._waiting)

    @property
    @abstractmethod
    def kv_usage(self) -> float:
        """The part of the KV cache that running sequences hold."""

    def _still(self) -> bool:
        return self._frozen or self._paused_at is not None

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
        for seq in sequences:
            self._order += 1
            seq.order, seq.arrived = self._order, now
            self._enqueue(seq)
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

    def pause(self) -> None:
        """Stand still until `resume`, as a stopped process does."""
        if self._paused_at is None:
            self._paused_at = self._clock.now()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def resume(self) -> None:
        """Go on where it stood."""
        if self._paused_at is not None:
            now = self._clock.now()
            begun, self._paused_at = self._paused_at, None
            self._shift(now - begun)
            self._admit(now)
            self._arm()

    def slow_down(self, factor: float) -> None:
        """From now on take so many times as long for everything, for those that run too."""
        self._slowness = factor

    def kill(self) -> list[Sequence]:
        """Drop every sequence and return them."""
        lost = [*self._running, *self._waiting]
        self._frozen = True
        for seq in lost:
            seq.done = True
        self._running.clear()
        self._waiting.clear()
        return lost

    @abstractmethod
    def _admit(self, now: float) -> None:
        """Let those run for whom there is room."""

    @abstractmethod
    def _arm(self) -> None:
        """See to it that the timer goes off when the next thing is due."""

    @abstractmethod
    def _shift(self, seconds: float) -> None:
        """Put off all that is due."""

    @abstractmethod
    def _postpone(self, seq: Sequence, until: float) -> None:
        """Let a running sequence say no more before a time."""

    def _enqueue(self, seq: Sequence) -> None:
        by_priority = self._settings.scheduling_policy == "priority"
        self._waiting[seq] = None
        heappush(self._queue, (seq.sampling.priority if by_priority else 0, seq.order, seq))

    def _next(self) -> Sequence | None:
        """The next in line; it stays there."""
        while self._queue:
            seq = self._queue[0][2]
            if not seq.done:
                return seq
            heappop(self._queue)
        return None

    def _dequeue(self) -> None:
        """Let the next in line run."""
        seq = heappop(self._queue)[2]
        del self._waiting[seq]
        self._running[seq] = None

    def _look_up(self, seq: Sequence, now: float) -> None:
        """Find what is computed already of a sequence that begins to run."""
        size = self._settings.block_size
        seq.started = now
        seq.cached = self._cache.match(seq.prompt, seq.cache_salt)
        seq.created = len(seq.prompt) // size * size - seq.cached
        self._metrics.started(len(seq.prompt), seq.cached)

    def _leave(self, seq: Sequence) -> None:
        seq.done = True
        self._waiting.pop(seq, None)
        if seq in self._running:
            del self._running[seq]
            self._cache.insert([*seq.prompt, *seq.ids], seq.cache_salt)

    def _first(self, seq: Sequence, now: float) -> None:
        seq.first = now
        self._cache.insert(seq.prompt, seq.cache_salt)
        self._metrics.ttft.observe(now - seq.arrived)

    def _said(self, seq: Sequence, now: float, count: int, gap: float) -> None:
        seq.latest = now
        self._metrics.generation_tokens += count
        if count and len(seq.ids) > count:
            self._metrics.itl.observe(gap / count, count)

    def _compute_only(self, seq: Sequence, now: float) -> None:
        """The end of one that says nothing."""
        if seq.fault is None or self._struck(seq, now):
            seq.first = seq.latest = now
            seq.finish_reason = "stop"
            self._finish(seq, now)

    def _struck(self, seq: Sequence, now: float) -> bool:
        """Whether the sequence goes on at once after its fault."""
        fault, seq.fault = seq.fault, None
        seq.remark()
        if fault is None:
            return True
        seq.sink.on_strike(seq, fault)
        if seq.done:
            return False
        if seq.finish_reason is not None:
            self._finish(seq, now)
            return False
        return self._goes_on(seq, fault, now)

    def _goes_on(self, seq: Sequence, fault: Fault, now: float) -> bool:
        if fault.fail in ("garbage_event", "sigterm") and not self._still():
            return True
        if fault.fail == "freeze":
            self._postpone(seq, now)
        elif fault.fail == "stall" and fault.for_s is not None:
            self._postpone(seq, now + fault.for_s)
        return False

    def _finish(self, seq: Sequence, now: float) -> None:
        seq.finished = now
        if not seq.ids:
            seq.first = seq.latest = now
        self._leave(seq)
        self._metrics.finished(seq)
        seq.sink.on_finish(seq)
        self._admit(now)
