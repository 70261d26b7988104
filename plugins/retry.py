"""Asks another worker where one has failed, within a budget and only where that does no harm.

What a caller caused is not repeated, nor what has effects beyond its answer once a worker may have seen it. Slow
failures are repeated only where that is asked for, because the prompt is then computed twice.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from tailrace.plugins.retry_means import NO_MORE, Means
from tailrace.proxy.allowing import MAX_TRIES, others
from tailrace.proxy.config import Above, AtLeast, AtMost, Seconds, setting
from tailrace.proxy.fault import Whose
from tailrace.proxy.headers import listed
from tailrace.proxy.logs import Seldom
from tailrace.proxy.plugin import Key, Plugin, Target
from tailrace.proxy.repeatable import repeatable, seen
from tailrace.proxy.retry_budget import RetryBudget

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.head import Head
    from tailrace.proxy.outcome import AttemptEnd

log: Final = logging.getLogger("tailrace")
_KINDS: Final = dict.fromkeys(("connect_failed", "connection_lost", "http_error", "overloaded", "suspect"), 0)
_WHYS: Final = dict.fromkeys(("retry", "hedge", "fallback"), 0)
"""Counted from 0, as a counter that begins above it alarms nobody."""
MOVES: Final = frozenset({"suspect", "first_token_timeout", "drained"})
"""Faults of attempts that only kept a call waiting: another worker is asked at once."""
_TIMEOUT: Final = "_timeout"
_PAID: Final[Key[int]] = Key("retry")
"""How many attempts there were when the next one was paid for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """How many further attempts a process may make; hedges are paid from it too."""

    share: Annotated[float, AtLeast(0), AtMost(1)] = setting(
        default=0.2, help="further attempts for each call", why="a fifth more work is what a fleet survives"
    )
    per_second: Annotated[float, AtLeast(0)] = setting(
        default=10.0, help="and so many a second in any case", why="few calls earn little"
    )
    window: Annotated[Seconds, Above(0)] = setting(default=10.0, help="how long it can be spent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """When a further attempt is made, and how many."""

    attempts: Annotated[int, AtLeast(1), AtMost(MAX_TRIES)] = setting(
        default=MAX_TRIES, help="attempts of a call in all", why="the core allows no more, over every hop"
    )
    back_off: Seconds = setting(
        default=0.025,
        help="the pause before the second attempt, drawn between half of it and all; doubles",
        why="callers wait; another worker need not be spared for long",
    )
    back_off_limit: Seconds = setting(default=1.0, help="the longest such pause")
    longest_wait: Seconds = setting(
        default=2.0,
        help="how long the Retry-After of the only worker that is left is waited for; one that asks for more fails",
    )
    slow: bool = setting(
        default=False, help="whether a timeout is a reason to ask again, once", why="the prompt is computed twice"
    )
    budget: BudgetSettings = setting(default_factory=BudgetSettings, help="of each process")


_Config = Config  # inside the class the name means its attribute


class Retry(Plugin[Config]):
    """Names another worker after a fault, and pays for what others name.

    What every call asks for is a method of its `_means`, compiled and called as it is.
    """

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        budget = config.budget
        self._budget = RetryBudget(budget.share, budget.per_second, budget.window)
        self._means = Means(self._budget)
        self._retried: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._complaint = Seldom(10.0)

    @property
    def on_chosen(self) -> Callable[[Call, Attempt], bool]:
        """No further attempt for a worker that asked to be left alone."""
        return self._means.lets

    @property
    def patience(self) -> Callable[[Call, Sequence[Attempt]], None]:
        """Earn from a first attempt that has begun, pay for a hedge that has; whether others wait is not asked here."""
        return self._means.began

    def next_target(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> Target | None:
        """Another worker; the one that failed only where there is no other."""
        if not tries or len(tries) >= self.config.attempts:
            return None
        if fault.kind == "no_worker":
            return self._least_held(call)
        if not self._worth_it(call, tries, fault):
            return None
        self._retried[fault.kind] = self._retried.get(fault.kind, 0) + 1
        return Target(delay=self._pause(call, tries, fault))

    def _worth_it(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> bool:
        if not fault.retryable or fault.whose is Whose.CLIENT or call.pinned is not None:
            return False
        if listed(fault.headers, NO_MORE) == b"false":
            return False
        if fault.kind.endswith(_TIMEOUT) and fault.kind not in MOVES:
            slow = [attempt for attempt in tries if attempt.fault is not None and attempt.fault.kind.endswith(_TIMEOUT)]
            if not self.config.slow or len(slow) > 1:
                return False
        return not seen(tries) or repeatable(call)

    def _pause(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> float:
        if fault.kind in MOVES or (not fault.sent and others(call)):
            return 0.0
        most = min(self.config.back_off * 2.0 ** (len(tries) - 1), self.config.back_off_limit)
        return most * random.uniform(0.5, 1.0)

    def _least_held(self, call: Call) -> Target | None:
        """The worker that will take calls again first, where that is soon; all that are left asked to wait."""
        entry, now = call.entry, call.client.loop.time()
        held = [
            (until, worker)
            for worker, until in self._means.held.items()
            if until > now and worker.eligible and entry is not None and entry.pool in worker.pools
        ]
        if not held or call.pinned is not None or (seen(call.tries) and not repeatable(call)):
            return None
        until, worker = min(held, key=lambda pair: pair[0])
        return Target(worker=worker, delay=until - now) if until - now <= self.config.longest_wait else None

    def allow(self, call: Call, tries: Sequence[Attempt], why: str) -> bool:
        """Whether the budget has room; what no worker has seen costs nothing, nor does the rescue of a stream."""
        if why == "rescue" or not tries:
            return True
        last = tries[-1].fault
        if last is not None and not last.sent and not tries[-1].status:
            return True
        if why == "hedge":
            # Paid for when it begins: other policies may not want it.
            paid = self._budget.left(call.client.service.clock.now) >= 1
        else:
            # A target that could not be asked is named again, and paid for once.
            paid = (_PAID in call and call[_PAID] == len(tries)) or self._means.pay(call)
            call[_PAID] = len(tries) if paid else 0
        if not paid:
            self._refused[why] = self._refused.get(why, 0) + 1
            if why != "hedge" and self._complaint.due():
                self._tell()
        return paid

    def _tell(self) -> None:
        log.warning(
            "the retry budget is used up: %d further attempts for the last %d calls; more faults reach clients%s",
            self._budget.spent,
            self._budget.earned,
            self._complaint.more(),
        )

    @property
    def on_attempt_end(self) -> Callable[[Call, Attempt, AttemptEnd], None]:
        """Note how long a worker asked to be left alone."""
        return self._means.ended

    @property
    def on_answer(self) -> Callable[[Call, Head], None]:
        """Tell another gateway before this one that what could be tried has been tried."""
        return self._means.answered

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """What was retried and why, what the budget refused, and what is left of it."""
        for kind, count in {**_KINDS, **self._retried}.items():
            yield "retried_total", {"fault": kind}, count
        for why, count in {**_WHYS, **self._refused}.items():
            yield "refused_total", {"why": why}, count
        yield "budget_left", {}, max(0.0, self._budget.left(time.monotonic()))
