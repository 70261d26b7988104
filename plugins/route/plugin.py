"""The plugin's shell: which phases each policy takes part in.

A chain looks once, at start, at what a class defines, so that the simple policies cost no call anything but the choice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tailrace.plugins.route.lessons import Lessons
from tailrace.plugins.route.settings import Config
from tailrace.plugins.route.simple import SIMPLE, Policy
from tailrace.plugins.route.tail import Tail
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.outcome import AttemptEnd, Outcome

_Config = Config  # inside the class the name means its attribute


class Route(Plugin[Config]):
    """Scores candidates; the core takes the best, and one at random where several are best."""

    Config = Config

    def __new__(cls, config: _Config, *_: object, **__: object) -> Route:
        """`policy: tail` learns, and takes part in more phases."""
        return super().__new__(TailRoute if config.policy == "tail" else cls)

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._policy: Policy | None = None if config.policy == "tail" else SIMPLE[config.policy]()

    def score_workers(self, call: Call, candidates: Sequence[Worker]) -> Sequence[float]:
        """The best score for whom the policy wants."""
        assert self._policy is not None
        return self._policy.scores(candidates)


class TailRoute(Route):
    """The soonest first token, by what was learnt of each worker; see `tail.py`.

    What it does in each phase is a method of `tail` or `lessons`, compiled and called as it is.
    """

    def __init__(self, config: _Config, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(config)
        self.lessons = Lessons(config, now)
        self.tail = Tail(config, self.lessons)

    @property
    def score_workers(self) -> Callable[[Call, Sequence[Worker]], Sequence[float]]:
        """1 for the chosen one."""
        return self.tail.scores

    @property
    def nominate(self) -> Callable[[Call, Sequence[Worker]], Sequence[Worker]]:
        """Those that the call's session or prefix leads to, and some of the preferred region."""
        return self.tail.nominate

    @property
    def on_chosen(self) -> Callable[[Call, Attempt], bool]:
        """Count the prompt as work that its worker has before it."""
        return self.lessons.chosen

    @property
    def on_commit(self) -> Callable[[Call, Attempt], None]:
        """Learn how long the first content took."""
        return self.lessons.committed

    @property
    def on_attempt_end(self) -> Callable[[Call, Attempt, AttemptEnd], None]:
        """Learn from faults, and from waits that others ended."""
        return self.lessons.ended

    @property
    def on_complete(self) -> Callable[[Call, Outcome], None]:
        """Let go of what another plugin's veto left."""
        return self.lessons.completed

    def metrics(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """What decided, how often a session's or prefix's place was passed over, and what is before the workers."""
        for by, count in self.tail.decided.items():
            yield "chosen_total", {"by": by}, count
        yield "spilled_total", {}, self.tail.spilled
        yield "backlog_tokens", {}, self.lessons.backlog
