"""Which calls are kept, decided when they are over: by what became of them, else by the decision at their beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.proxy.outcome import Ending
from tailrace.proxy.trace.context import SAMPLED

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

SAMPLED_ONLY: Final = "sampled"
REASONS: Final = ("error", "attempts", "budget", "slow", SAMPLED_ONLY)
_FIRST: Final = 64
"""Calls of a kind before any of them is slow."""
_STEP: Final = 0.1
_MOST_KINDS: Final = 256
_ROOM: Final = 5
"""One in so many of those that are kept is not for those that are only sampled."""
_SECOND: Final = 1_000_000_000


class _Mark:
    """What counts as slow for one kind of call."""

    __slots__ = ("at", "seen")

    def __init__(self) -> None:
        self.at = 0.0
        self.seen = 0


class Slowness:
    """Finds the share of calls that take longest, of each kind, without remembering any.

    The mark goes up a long step with each call above it and down a short one with each below, so that in the long run
    just that share is above, whatever is usual at the time.
    """

    __slots__ = ("_down", "_marks", "_share", "_up")

    def __init__(self, share: float) -> None:
        self._share = share
        self._up = 1.0 + _STEP * (1.0 - share)
        self._down = 1.0 - _STEP * share
        self._marks: dict[tuple[str, bool], _Mark] = {}

    def slow(self, route: str, stream: bool, took_ns: int) -> bool:
        """Whether a call is among the slowest of its kind; it counts from then on."""
        if self._share <= 0.0:
            return False
        mark = self._marks.get((route, stream))
        if mark is None:
            if len(self._marks) >= _MOST_KINDS:
                return False
            mark = self._marks[route, stream] = _Mark()
        took = float(took_ns)
        if mark.seen < _FIRST:
            mark.seen += 1
            mark.at = max(mark.at, took)
            return False
        if took > mark.at:
            mark.at *= self._up
            return True
        mark.at *= self._down
        return False


class Keeping:
    """`why` is asked once for each call."""

    __slots__ = ("_left", "_rate", "_second", "_slowness", "dropped", "kept")

    def __init__(self, slowest: float, rate: int) -> None:
        self._slowness = Slowness(slowest)
        self._rate = self._left = rate
        self._second = 0
        self.kept: dict[str, int] = dict.fromkeys(REASONS, 0)
        self.dropped = 0
        """Calls that were worth keeping, and more than `rate` in their second."""

    def why(self, call: Call, outcome: Outcome) -> str:
        """What a call is kept for, empty where it is not."""
        reason = self._reason(call, outcome)
        if not reason:
            return ""
        second = outcome.finished_ns // _SECOND
        if second != self._second:
            self._second = second
            self._left = self._rate
        # What clients want all of leaves room for what went wrong.
        if self._left <= (self._rate // _ROOM if reason == SAMPLED_ONLY else 0):
            self.dropped += 1
            return ""
        self._left -= 1
        self.kept[reason] += 1
        return reason

    def _reason(self, call: Call, outcome: Outcome) -> str:
        first = outcome.first_content_ns
        until = first if first and call.stream else outcome.finished_ns
        ending = outcome.ending
        slow = ending is Ending.COMPLETED and self._slowness.slow(call.route.name, call.stream, until - call.started_ns)
        if outcome.failed:
            return "error"
        if len(call.tries) > 1:
            return "attempts"
        if call.time is not None and self._missed(call, outcome):
            return "budget"
        if slow:
            return "slow"
        trace = call.trace
        return SAMPLED_ONLY if trace is not None and trace.flags & SAMPLED else ""

    def _missed(self, call: Call, outcome: Outcome) -> bool:
        """Whether what was due came too late, or not at all; a client that has left is owed nothing any more."""
        budget = call.time
        if budget is None or outcome.ending is not Ending.COMPLETED:
            return False
        finished = outcome.finished_ns
        if budget.first_ns and (outcome.first_content_ns or finished) > budget.first_ns:
            return True
        return bool(budget.ends_ns) and finished > budget.ends_ns
