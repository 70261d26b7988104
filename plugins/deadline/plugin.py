"""The `deadline` plugin: gives each call its budget, refuses early what cannot be in time, and ends what is not.

The budget is the call's `time`: queues go by it, and each attempt tells its worker what is left. There is one timer a
call, none a token. What is missed ends with 504, or an error in the stream; what is refused early is a 503 with the
seconds after which it is worth another try.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import TYPE_CHECKING

from tailrace.plugins.deadline.settings import Config as _Config
from tailrace.plugins.deadline.timekeeper import Timekeeper
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import AttemptEnd, Outcome


class Deadline(Plugin[_Config]):
    """Stands behind `service_class`, where there is one, and before whatever makes calls wait.

    What it does in each phase is a method of its `keeper`, compiled and called as it is.
    """

    Config = _Config

    def __init__(self, config: _Config, clock: Callable[[], int] = monotonic_ns) -> None:
        super().__init__(config)
        self.keeper = Timekeeper(config, clock)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Holds the timer."""
        try:
            yield
        finally:
            self.keeper.alarms.stop()

    @property
    def on_request(self) -> Callable[[Call], None]:
        """Find the budget and start its clock; raises Reject where it cannot be kept."""
        return self.keeper.begin

    @property
    def recheck(self) -> Callable[[Call], None]:
        """A wait may have cost too much of it."""
        return self.keeper.recheck

    @property
    def allow(self) -> Callable[[Call, Sequence[Attempt], str], bool]:
        """No attempt that cannot be in time."""
        return self.keeper.allows

    @property
    def on_commit(self) -> Callable[[Call, Attempt], None]:
        """Learn, and go on to the end's moment where that of the first content is kept."""
        return self.keeper.committed

    @property
    def on_attempt_end(self) -> Callable[[Call, Attempt, AttemptEnd], None]:
        """Learn from what had not come yet."""
        return self.keeper.ended

    @property
    def on_complete(self) -> Callable[[Call, Outcome], None]:
        """Its time does not matter any more."""
        return self.keeper.completed

    def metrics(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """What came of it."""
        for (model, name), count in self.keeper.refused.items():
            yield "refused_total", {"model": model, "class": name}, count
        for (what, model, name), count in self.keeper.missed.items():
            yield "missed_total", {"what": what, "model": model, "class": name}, count
