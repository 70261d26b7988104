"""Percentiles of latencies pooled over several windows, and how sure they are.

The bootstrap draws blocks of consecutive samples instead of single ones: neighbours share their
machine's moods, and drawn singly they would claim a certainty that is not there.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95% interval."""

    value: float
    low: float
    high: float


class Pool:
    """The samples of all windows of one proxy, sorted once, each remembering its block."""

    def __init__(self, windows: Sequence[Sequence[int]], block_size: int) -> None:
        blocks = [w[i : i + block_size] for w in windows for i in range(0, len(w), block_size)]
        if not blocks:
            raise ValueError("no samples")
        marked = sorted((sample, number) for number, block in enumerate(blocks) for sample in block)
        self._samples = [sample for sample, _ in marked]
        self._block_of = [number for _, number in marked]
        self._blocks = len(blocks)

    @property
    def count(self) -> int:
        return len(self._samples)

    def quantiles(self, wanted: Sequence[float]) -> list[int]:
        return self._weighted([1] * self._blocks, wanted)

    def redrawn(self, random: Random, wanted: Sequence[float]) -> list[int]:
        """The quantiles of a pool as large as this one, of blocks drawn from it with replacement."""
        weights = [0] * self._blocks
        for block in random.choices(range(self._blocks), k=self._blocks):
            weights[block] += 1
        return self._weighted(weights, wanted)

    def _weighted(self, weights: Sequence[int], wanted: Sequence[float]) -> list[int]:
        cumulated = list(accumulate(map(weights.__getitem__, self._block_of)))
        return [self._samples[bisect_left(cumulated, max(1, q * cumulated[-1]))] for q in wanted]


def differences(one: Pool, other: Pool, wanted: Sequence[float], *, redraws: int, seed: int) -> list[Interval]:
    """Each wanted quantile of `one` less that of `other`, with its interval over the redraws of both."""
    random = Random(seed)
    drawn = [
        [a - b for a, b in zip(one.redrawn(random, wanted), other.redrawn(random, wanted), strict=True)]
        for _ in range(redraws)
    ]
    found = []
    for index, (a, b) in enumerate(zip(one.quantiles(wanted), other.quantiles(wanted), strict=True)):
        spread = sorted(row[index] for row in drawn)
        last = len(spread) - 1
        found.append(Interval(a - b, spread[round(0.025 * last)], spread[round(0.975 * last)]))
    return found
