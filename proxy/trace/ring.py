"""The last calls of a process, for whoever asks what became of one: bounded in number and in age.

What went wrong, and what needed more than one attempt, has a place of its own, so that it is not pushed out by the
many calls that went well, nor by those of a client that is refused again and again.
"""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from tailrace.proxy.trace.record import FINISHED, Raw, raw_of

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

CALLS: Final = 5000
KEPT_S: Final = 900.0
_SHARE: Final = 4
"""One in so many places is for calls that are worth remembering longer."""


class Ring:
    """`note` is called once for every call; all else is for people who ask."""

    __slots__ = ("_kept_ns", "_limit", "_notable", "_recent")

    def __init__(self, limit: int = CALLS, kept_s: float = KEPT_S) -> None:
        self._limit = limit
        self._kept_ns = int(kept_s * 1e9)
        self._recent: deque[Raw] = deque(maxlen=limit)
        self._notable: deque[Raw] = deque(maxlen=-(-limit // _SHARE))

    def bound(self, limit: int, kept_s: float) -> None:
        """Go by other bounds from now on; what is there stays as far as they let it."""
        if limit != self._limit:
            self._limit = limit
            self._recent = deque(self._recent, maxlen=limit)
            self._notable = deque(self._notable, maxlen=-(-limit // _SHARE))
        self._kept_ns = int(kept_s * 1e9)

    def note(self, call: Call, outcome: Outcome) -> None:
        """Remember a call that is over, and hand its record on where its trace is kept."""
        trace = call.trace
        keep = None if trace is None else trace.keep
        if (not self._limit and keep is None) or not call.route.guarded:
            return  # probes come every second, and tell nobody anything
        raw = raw_of(call, outcome)
        self._recent.append(raw)
        if len(call.tries) > 1 or outcome.failed:
            self._notable.append(raw)
        if keep is not None:
            keep(raw)

    def visit(self, _now: float) -> None:
        """Forget what is too old; called a few times a second."""
        oldest = monotonic_ns() - self._kept_ns
        for kept in (self._recent, self._notable):
            while kept and kept[0][FINISHED] < oldest:
                kept.popleft()

    def all(self) -> list[Raw]:
        """Every record, once, in no order."""
        found = list(self._recent)
        known = {id(raw) for raw in found}
        found += [raw for raw in self._notable if id(raw) not in known]
        return found
