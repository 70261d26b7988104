"""The `hedge` plugin: when a call waits longer than its like, another worker is asked as well, once and within bounds.

The race itself, and the end of the slower one, are the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tailrace.plugins.hedge.hedges import LATE, Hedges
from tailrace.plugins.hedge.latencies import Latencies
from tailrace.plugins.hedge.settings import QUANTILES
from tailrace.plugins.hedge.settings import Config as _Config
from tailrace.proxy.plugin import Plugin, Target
from tailrace.proxy.retry_budget import RetryBudget

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.outcome import AttemptEnd

WINDOW: Final = 30.0


class Hedge(Plugin[_Config]):
    """Gives calls patience, and learns from the commit of each how much is usual.

    What it does in each phase is a method of its `hedges`, compiled and called as it is.
    """

    Config = _Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._latencies = Latencies(QUANTILES[config.after], config.samples, window=WINDOW)
        self._budget = RetryBudget(config.extra, 0.0, WINDOW, carried=1.0)
        self.hedges = Hedges(config, self._latencies, self._budget)

    @property
    def on_chosen(self) -> Callable[[Call, Attempt], bool]:
        """No second attempt at a worker that has enough to do."""
        return self.hedges.chosen

    @property
    def patience(self) -> Callable[[Call, Sequence[Attempt]], float | None]:
        """How long the attempt that has begun may be waited for before another is asked beside it."""
        return self.hedges.patience

    def next_target(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> Target | None:
        """Another worker where a call has waited to its limit."""
        return Target() if fault.kind == LATE else None

    @property
    def allow(self) -> Callable[[Call, Sequence[Attempt], str], bool]:
        """Whether a second attempt may begin beside a running one."""
        return self.hedges.allows

    @property
    def on_commit(self) -> Callable[[Call, Attempt], None]:
        """Learn how long the call waited: from its beginning where it was raced, so that slow ones stay in sight."""
        return self.hedges.committed

    @property
    def on_attempt_end(self) -> Callable[[Call, Attempt, AttemptEnd], None]:
        """Count what was moved; a call without a running attempt has no limit to wait for."""
        return self.hedges.ended

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Second attempts, how they fared, and why there were no more."""
        hedges = self.hedges
        yield "fired_total", {}, hedges.fired
        yield "won_total", {}, hedges.won
        yield "lost_total", {}, hedges.lost
        yield "moved_total", {}, hedges.moved
        for reason, count in hedges.refused.items():
            yield "refused_total", {"reason": reason}, count
