"""What the engine counts."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from tailrace.worker.sim.sequence import Sequence

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
            960.0, 1920.0, 7680.0)  # fmt: skip
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
         160.0, 640.0, 2560.0)  # fmt: skip
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_ITERATION = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)


def _sizes(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to a limit."""
    steps = (m * 10**power for power in range(len(str(limit))) for m in (1, 2, 5))
    return tuple(float(step) for step in steps if step <= limit)


class Histogram:
    """Counts by upper bound."""

    __slots__ = ("bounds", "buckets", "count", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, as often as it happened."""
        self.buckets[bisect_left(self.bounds, value)] += times
        self.count += times
        self.sum += value * times


class Metrics:
    """Counters and histograms of one engine."""

    def __init__(self, max_model_len: int) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.rejected = 0
        self.preemptions = 0
        self.finish_reasons: Counter[str] = Counter()
        self.ttft = Histogram(_TTFT)
        self.itl = Histogram(_ITL)
        self.per_token = Histogram(_ITL)
        self.e2e = Histogram(_LATENCY)
        self.queue = Histogram(_LATENCY)
        self.inference = Histogram(_LATENCY)
        self.prefill = Histogram(_LATENCY)
        self.decode = Histogram(_LATENCY)
        self.iteration = Histogram(_ITERATION)
        self.request_prompt = Histogram(_sizes(max_model_len))
        self.request_generation = Histogram(_sizes(max_model_len))

    def started(self, prompt: int, cached: int) -> None:
        """A sequence has left the queue."""
        self.prompt_tokens += prompt
        self.cached_tokens += cached

    def finished(self, seq: Sequence) -> None:
        """A sequence is complete; not called for one whose client left, as in vLLM."""
        self.finish_reasons[seq.finish_reason or "abort"] += 1
        said = len(seq.ids)
        self.e2e.observe(seq.finished - seq.arrived)
        self.queue.observe(seq.started - seq.arrived)
        self.inference.observe(seq.latest - seq.started)
        self.prefill.observe(seq.first - seq.started)
        self.decode.observe(seq.latest - seq.first)
        self.per_token.observe((seq.latest - seq.first) / (said - 1) if said > 1 else 0.0)
        self.request_prompt.observe(len(seq.prompt))
        self.request_generation.observe(said)
