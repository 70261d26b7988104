"""The policies that know nothing of workers but how much is under way, and their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import random
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker

SMALLEST: Final = 1e-6
"""The least that a weight counts as: such workers get calls where there are no others."""


class Policy(Protocol):
    """Which of the candidates is best."""

    def scores(self, candidates: Sequence[Worker]) -> Sequence[float]:
        """A score in [0, 1] for each."""


class LeastInflight:
    """The fewest calls under way for a worker's weight; the counts are live, so calls of one burst see each other."""

    def scores(self, candidates: Sequence[Worker]) -> Sequence[float]:
        """1 for a worker with nothing under way, less the more it has."""
        if alike(candidates):
            return [1.0 / (1 + worker.inflight) for worker in candidates]
        loads = [worker.inflight / max(worker.weight, SMALLEST) for worker in candidates]
        least = min(loads)
        first = drawn([worker.weight if load == least else 0.0 for worker, load in zip(candidates, loads, strict=True)])
        return [1.0 if index == first else 0.5 / (1.0 + load) for index, load in enumerate(loads)]


class Random:
    """Any worker, as often as its weight says."""

    def scores(self, candidates: Sequence[Worker]) -> Sequence[float]:
        """The same for all where weights are alike: the core draws one."""
        if alike(candidates):
            return (1.0,) * len(candidates)
        return only(drawn([worker.weight for worker in candidates]), len(candidates))


class RoundRobin:
    """Each in turn, and the next turn of one with twice the weight comes in half the time."""

    def __init__(self) -> None:
        self._due: dict[Worker, float] = {}
        self._now = 0.0
        self._most = 64

    def scores(self, candidates: Sequence[Worker]) -> Sequence[float]:
        """1 for the candidate that is due first; those that had no turn yet are in random order."""
        due, now = self._due, self._now
        turns = [due.setdefault(worker, now - random()) for worker in candidates]
        soonest = min(turns)
        first = turns.index(soonest)
        self._now = now = max(now, soonest)
        worker = candidates[first]
        # Who was away meanwhile has a turn to catch up with, not all that it missed.
        due[worker] = max(soonest + 1.0 / max(worker.weight, SMALLEST), now)
        if len(due) > self._most:
            self._due = {worker: turn for worker, turn in due.items() if worker.pools}
            self._most = 2 * len(self._due) + 64
        return only(first, len(turns))


SIMPLE: Final[Mapping[str, Callable[[], Policy]]] = {
    "least_inflight": LeastInflight,
    "random": Random,
    "round_robin": RoundRobin,
}


def alike(candidates: Sequence[Worker]) -> bool:
    """Whether all have the same weight."""
    weight = candidates[0].weight
    return all(worker.weight == weight for worker in candidates)


def drawn(weights: Sequence[float]) -> int:
    """The place of one, drawn by weight, which one of them has at least."""
    left = random() * sum(weights)
    for index, weight in enumerate(weights):
        left -= weight
        if left < 0.0:
            return index
    return max(range(len(weights)), key=weights.__getitem__)


def only(first: int, count: int) -> list[float]:
    """1 for one of the candidates, 0 for the others."""
    return [1.0 if index == first else 0.0 for index in range(count)]
