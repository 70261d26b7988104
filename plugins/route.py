"""Chooses the worker of an attempt by what this process has under way at each.

The counts are live: a worker's goes up at the moment of choice, so calls of one burst see each other. Workers that are
drained or dead are not among the candidates.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tailrace.proxy.config import setting
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How a worker is chosen."""

    policy: Literal["least_inflight", "random", "round_robin"] = setting(
        default="least_inflight",
        help="fewest calls under way, any worker, or each in turn",
        why="one slow answer must not have others queue behind it",
    )


_Config = Config  # inside the class the name means its attribute


class Route(Plugin[Config]):
    """Scores candidates; the core takes the best, and one at random where several are best."""

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._counts = config.policy == "least_inflight"
        self._turns: dict[Worker, float] | None = {} if config.policy == "round_robin" else None
        self._turn = 0.0

    def score_workers(self, call: Call, candidates: Sequence[Worker]) -> Sequence[float]:
        """1 for a worker with nothing under way, less the more it has."""
        if self._counts:
            return [1.0 / (1 + worker.inflight) for worker in candidates]
        if self._turns is None:
            return (1.0,) * len(candidates)
        return self._in_turn(candidates, self._turns)

    def _in_turn(self, candidates: Sequence[Worker], turns: dict[Worker, float]) -> Sequence[float]:
        """1 for the candidate whose last turn is longest ago; those that had none are in random order."""
        last = [turns.setdefault(worker, -random.random()) for worker in candidates]
        oldest = min(last)
        first = last.index(oldest)
        self._turn += 1
        turns[candidates[first]] = self._turn
        return [1.0 if index == first else 0.0 for index in range(len(last))]
