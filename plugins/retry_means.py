"""What there is for further attempts: a budget, and workers that have not asked to be left alone.

Apart from `retry`, which is not compiled, as every call asks, though few are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.proxy.headers import OWN_NAME
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.retry_budget import RetryBudget

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.head import Head

NO_MORE: Final = b"x-should-retry"
_MOST_HELD: Final = 256
_LONGEST: Final = 30.0
"""Seconds that are believed: clocks are wrong by a day, and what is written by hand by more."""
_EARLY: Final = 0.005
"""Seconds that a timer may fire too early by the loop's own clock."""


class Means:
    """Of one chain in one process."""

    __slots__ = ("budget", "held")

    def __init__(self, budget: RetryBudget) -> None:
        self.budget = budget
        self.held: dict[Worker, float] = {}
        """Until when workers asked to be left alone, by the loop's clock."""

    def lets(self, call: Call, attempt: Attempt) -> bool:
        """No further attempt for a worker that asked to be left alone; a stream that is shown already cannot wait."""
        if not self.held or attempt.number == 1 or attempt.why == "rescue":
            return True
        now: float = call.client.loop.time()
        return self.held.get(attempt.worker, 0.0) <= now + _EARLY

    def began(self, call: Call, tries: Sequence[Attempt]) -> None:
        """Earn from a first attempt that has begun, pay for a hedge that has; whether others wait is not asked here."""
        if len(tries) == 1:
            self.budget.earn(call.client.service.clock.now)
        elif tries[-1].why == "hedge":
            self.pay(call)

    def pay(self, call: Call) -> bool:
        """Take what a further attempt costs, if it is there."""
        return self.budget.spend(call.client.service.clock.now)

    def ended(self, call: Call, attempt: Attempt, end: AttemptEnd) -> None:
        """Note how long a worker asked to be left alone; one that answers is not."""
        if end is AttemptEnd.WON:
            if self.held:
                self.held.pop(attempt.worker, None)
            return
        fault = attempt.fault
        # Of its own answer's: what the gateway tells clients of a lost connection is no word of the worker.
        if fault is None or attempt.status not in (429, 503) or end is not AttemptEnd.FAILED:
            return
        if fault.kind == "unavailable":
            return  # its sidecar says by itself when it takes calls again
        if fault.retry_after is not None:
            now: float = call.client.loop.time()
            if len(self.held) >= _MOST_HELD:
                self.held = {worker: until for worker, until in self.held.items() if until > now}
            self.held[attempt.worker] = now + min(fault.retry_after, _LONGEST)

    def answered(self, call: Call, head: Head) -> None:
        """Tell another gateway before this one that what could be tried has been tried."""
        if head.status >= 500 and call.tries and OWN_NAME in (call.head.get(b"via") or b""):
            head.set(NO_MORE, b"false")
