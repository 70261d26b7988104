"""The pace of a profile: continuous batching, steps as long as what is in them takes, and a KV cache that fills up."""

from __future__ import annotations

from math import inf
from random import Random

from tailrace.worker.sim.clock import Clock
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.profile import Profile
from tailrace.worker.sim.scheduler import Scheduler
from tailrace.worker.sim.sequence import STRUCK, Sequence
from tailrace.worker.sim.settings import SimSettings

_BURST = 16
"""Steps that one wake-up may make up for, where the process came late."""
_DEBT_S = 0.1
"""What a process came late by more than this is lost, not made up for."""


class Batches(Scheduler):
    """Runs step after step: a token of every running answer, and pieces of prompts with what is left of the budget.

    An answer holds the blocks of its prompt from when it begins to run, and one more whenever it has filled its last,
    but not those that it found in the prefix cache, which count for nobody. Where no block is free, the running answer
    that came last, with priorities the one of the highest number, goes back to the queue, and what it had computed is
    computed anew when its turn comes.
    """

    def __init__(self, settings: SimSettings, profile: Profile, clock: Clock, metrics: Metrics, rng: Random) -> None:
        super().__init__(settings, clock, metrics, rng)
        self._profile = profile
        self._free = settings.num_gpu_blocks
        """Blocks; fewer than none where a single answer takes more than there are."""
        self._batch: dict[Sequence, int] = {}
        """How many tokens of whom the step under way computes."""
        self._ends: float | None = None
        """When it does; None between steps."""
        self._took = 0.0
        self._wake = inf
        """When to look again, where there is nothing to compute."""
        self._stepping = False

    @property
    def kv_usage(self) -> float:
        """The part of the KV cache that running sequences hold."""
        return min(1.0, 1 - self._free / self._settings.num_gpu_blocks)

    def kill(self) -> list[Sequence]:
        """Drop every sequence and return them."""
        self._free = self._settings.num_gpu_blocks
        return super().kill()

    def _admit(self, now: float) -> None:
        """Nothing: those who wait are let in as a step begins."""

    def _arm(self) -> None:
        if self._stepping or self._still():
            return
        if self._ends is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._begin(self._clock.now())
        self._book()

    def _book(self) -> None:
        when = self._wake if self._ends is None else self._ends
        if self._timer is None and when < inf:
            self._timer = self._clock.call_at(when, self._step)

    def _shift(self, seconds: float) -> None:
        if self._ends is not None:
            self._ends += seconds
        for seq in self._running:
            seq.resume_at += seconds if seq.resume_at else 0.0

    def _postpone(self, seq: Sequence, until: float) -> None:
        seq.resume_at = until

    def _step(self) -> None:
        """End the step under way, and all that would have ended by now, and begin the next."""
        self._timer = None
        if self._still():
            return
        self._stepping = True
        now = self._clock.now()
        horizon, begun = now + self._clock.resolution, now
        for _ in range(_BURST):
            if self._ends is not None:
                if self._ends > horizon:
                    break
                begun = max(self._ends, now - _DEBT_S)
                self._end(self._ends, now)
            if self._still():
                break
            self._begin(begun)
            if self._ends is None:
                break
        self._stepping = False
        if not self._still():
            self._book()

    def _end(self, at: float, now: float) -> None:
        batch, self._batch, self._ends = self._batch, {}, None
        self._metrics.iteration.observe(sum(batch.values()))
        for seq, count in batch.items():
            if self._still():
                # The server came to a stand in the midst of this.
                self._batch[seq], self._ends = count, at
            elif not seq.done:
                seq.computed += count
                if seq.computed == len(seq.prompt) + len(seq.ids):
                    self._say(seq, at, now)

    def _say(self, seq: Sequence, at: float, now: float) -> None:
        """Let one sequence say its next token."""
        if not seq.sampling.max_tokens:
            self._compute_only(seq, now)
            return
        if seq.slow > 1 and not self._may_speak(seq, at):
            return
        gap = now - seq.latest
        while (token := seq.advance()) == STRUCK:
            if not self._struck(seq, now):
                if not seq.done:
                    # Its last token is computed once more when it goes on, if ever.
                    seq.computed -= 1
                    seq.resume_at = seq.resume_at or inf
                return
        if len(seq.ids) == 1:
            self._first(seq, now)
        seq.sink.on_token(seq, token)
        self._said(seq, now, 1, gap)
        if seq.finish_reason is not None and not seq.done:
            self._finish(seq, now)

    def _may_speak(self, seq: Sequence, at: float) -> bool:
        """Whether one that is slow has waited for its first token, and let it wait for the next."""
        if not seq.resume_at:
            # One more step will have to end then.
            step = self._profile.step_ms / 1e3 * self._slowness
            seq.resume_at = at + (seq.slow - 1) * (at - seq.arrived) - step
            seq.computed -= 1
            return False
        seq.resume_at = at + (seq.slow - 1) * self._took
        return True

    def _begin(self, at: float) -> None:
        """Choose what the next step computes, and when it ends; without anything to compute, when to look again."""
        batch = self._batch = {}
        budget, self._wake = self._profile.max_num_batched_tokens, inf
        preempted = self._metrics.preemptions
        for seq in list(self._running):
            if seq.resume_at > at:
                self._wake = min(self._wake, seq.resume_at)
            elif budget and seq in self._running:
                count = min(len(seq.prompt) + len(seq.ids) - seq.computed, budget)
                if self._hold(seq, seq.computed + count):
                    batch[seq] = count
                    budget -= count
        if preempted == self._metrics.preemptions:
            self._let_in(at, budget)
        if batch:
            self._took = self._length()
            self._ends = at + self._took

    def _let_in(self, at: float, budget: int) -> None:
        """Let those run for whom there is room, in the order of the queue."""
        settings = self._settings
        while budget and len(self._running) < settings.max_num_seqs and (seq := self._next()) is not None:
            ready = seq.arrived + self._profile.overhead_ms / 1e3 * self._slowness
            if ready > at:
                self._wake = min(self._wake, ready)
                return
            tokens = len(seq.prompt) + len(seq.ids)
            if self._running and -(-tokens // settings.block_size) > self._free:
                return
            self._dequeue()
            seq.computed = self._known(seq, at)
            seq.blocks = seq.shared = seq.computed // settings.block_size
            self._hold(seq, tokens)
            self._batch[seq] = min(tokens - seq.computed, budget)
            budget -= self._batch[seq]

    def _known(self, seq: Sequence, at: float) -> int:
        """How many tokens need not be computed, of one that begins or begins again."""
        if seq.started:
            return self._cache.match([*seq.prompt, *seq.ids], seq.cache_salt)
        self._look_up(seq, at)
        return seq.cached

    def _length(self) -> float:
        """How long the step takes whose batch is chosen."""
        going = kv = prompt = depth = 0
        for seq, count in self._batch.items():
            if seq.ids and count == 1:
                going += 1
                kv += seq.computed
            else:
                prompt += count
                depth += count * (seq.computed + count // 2)
        seconds = self._profile.step_seconds(going, kv, prompt, depth) * self._slowness
        if self._profile.jitter:
            seconds *= self._rng.lognormvariate(0, self._profile.jitter)
        return seconds

    def _hold(self, seq: Sequence, tokens: int) -> bool:
        """Take the blocks for so many tokens, from others if need be; False where it had to give up its own."""
        needed = -(-tokens // self._settings.block_size) - seq.blocks
        if needed <= 0:
            return True
        while self._free < needed and len(self._running) > 1:
            victim = self._victim()
            self._preempt(victim)
            if victim is seq:
                return False
        self._free -= needed
        seq.blocks += needed
        return True

    def _victim(self) -> Sequence:
        if self._settings.scheduling_policy == "priority":
            return max(self._running, key=lambda seq: (seq.sampling.priority, seq.order))
        return next(reversed(self._running))

    def _preempt(self, seq: Sequence) -> None:
        """Send a running sequence back to the queue, where it stands before all that came later."""
        del self._running[seq]
        self._batch.pop(seq, None)
        self._release(seq)
        self._metrics.preemptions += 1
        self._enqueue(seq)

    def _release(self, seq: Sequence) -> None:
        self._free += seq.blocks - seq.shared
        seq.blocks = seq.shared = seq.computed = 0

    def _leave(self, seq: Sequence) -> None:
        self._release(seq)
        super()._leave(seq)
