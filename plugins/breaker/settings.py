"""What `breaker` can be told."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated

from tailrace.proxy.config import Above, AtLeast, AtMost, Seconds, setting
from tailrace.proxy.elsewhere import Elsewhere, unknown_models


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """When a worker is taken out, for how long, and how it comes back."""

    faults: Annotated[int, AtLeast(1)] = setting(
        default=5, help="faults in a row, as one process sees them, that take a worker out"
    )
    success: Annotated[float, AtLeast(0), AtMost(1)] = setting(
        default=0.8, help="the share of calls that must go well in the last 30 s"
    )
    volume: Annotated[int, AtLeast(1)] = setting(default=20, help="of how many calls at least that share counts")
    stalls: Annotated[int, AtLeast(1)] = setting(
        default=3,
        help="waits in a row for first content, or for more of it, that ended at their limit while nothing came from "
        "the worker",
        why="each has cost a caller the whole limit",
    )
    slow: Annotated[float, Above(1)] = setting(
        default=3.0, help="times the time to first token of the other workers (their median) that are too slow"
    )
    slow_samples: Annotated[int, AtLeast(1)] = setting(
        default=20, help="of how many streams of each worker that must be known"
    )
    slow_least: Seconds = setting(
        default=0.1, help="and more seconds than the others at least", why="a worker in another rack is no outlier"
    )
    open_for: Annotated[Seconds, Above(0)] = setting(
        default=5.0, help="how long it stays out the first time; doubles each time, give or take a fifth"
    )
    open_limit: Annotated[Seconds, Above(0)] = setting(default=300.0, help="the longest that it stays out")
    ramp: Seconds = setting(
        default=5.0,
        help="the shortest time in which it gets all its calls again, by steps that good times to first token allow",
        why="caches are cold",
    )
    degraded: tuple[Elsewhere, ...] = setting(
        default=(),
        help="what calls get of a model without any healthy worker: the first of `model`, `pool`, `message` that can "
        "be had",
    )

    def remark(self, models: Collection[str]) -> Iterator[str]:
        """Models that are not there."""
        return unknown_models(self.degraded, models)
