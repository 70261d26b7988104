"""A continuously batching scheduler on a clock that the test moves."""

from __future__ import annotations

from random import Random
from typing import Any

from tailrace.worker.sim import Fault, ManualClock, SimSettings
from tailrace.worker.sim.batches import Batches
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.profile import Profile
from tailrace.worker.sim.sequence import Sampling, Sequence

# A step takes 10 ms, 1 ms more for each answer that goes on, and 1 ms for each token of a prompt.
PLAIN: dict[str, Any] = {
    "overhead_ms": 0.0,
    "step_ms": 10.0,
    "decode_ms_per_sequence": 1.0,
    "decode_ms_per_1k_kv": 0.0,
    "prefill_ms_per_1k": 1000.0,
    "max_num_batched_tokens": 100,
    "max_num_seqs": 8,
    "block_size": 10,
    "num_gpu_blocks": 1000,
}


class Listener:
    """Notes when each token and each end came."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.name = bench, name

    def note(self, what: str) -> None:
        at = round((self.bench.clock.now() - 1000) * 1000, 6)
        self.bench.log.append((self.name, at, what))

    def on_token(self, seq: Sequence, token: int | None) -> None:
        self.note("token")

    def on_finish(self, seq: Sequence) -> None:
        self.note(str(seq.finish_reason))

    def on_strike(self, seq: Sequence, fault: Fault) -> None:
        self.note(fault.fail)
        if fault.fail == "freeze":
            self.bench.scheduler.pause()

    def on_engine_death(self) -> None:
        self.note("dead")


class Bench:
    """A scheduler on a manual clock, and what came out of it."""

    def __init__(self, policy: Any = "fcfs", **knobs: Any) -> None:
        profile = Profile(**(PLAIN | knobs))
        settings = SimSettings(
            scheduling_policy=policy,
            max_num_seqs=profile.max_num_seqs,
            block_size=profile.block_size,
            num_gpu_blocks=profile.num_gpu_blocks,
        )
        self.clock = ManualClock()
        self.metrics = Metrics(settings.max_model_len)
        self.scheduler = Batches(settings, profile, self.clock, self.metrics, Random(1))
        self.log: list[tuple[str, float, str]] = []
        self.salt = 0

    def submit(self, name: str, tokens: int = 3, prompt: int = 5, priority: int = 0, **more: Any) -> Sequence:
        seq = self.made(name, tokens, prompt, priority, **more)
        self.scheduler.submit([seq])
        return seq

    def made(self, name: str, tokens: int = 3, prompt: int = 5, priority: int = 0, **more: Any) -> Sequence:
        self.salt += 1
        sampling = Sampling(max_tokens=tokens, greedy=True, priority=priority)
        salt = {"cache_salt": self.salt} | more
        return Sequence([10 + n % 100 for n in range(prompt)], sampling, Listener(self, name), **salt)

    def advance(self, ms: float) -> None:
        self.clock.advance(ms / 1000)

    def times(self, name: str, what: str = "token") -> list[float]:
        return [at for who, at, said in self.log if who == name and said == what]

    def counts(self) -> tuple[int, int]:
        return self.scheduler.running, self.scheduler.waiting
