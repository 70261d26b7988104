"""Gives calls their trace context, and says at their end what becomes of it: what every call pays for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.plugins.trace.ambient import attend
from tailrace.plugins.trace.keeping import Keeping
from tailrace.proxy.trace.context import (
    CURRENT,
    PARENT_HEADER,
    SAMPLED,
    STATE_HEADER,
    Keep,
    TraceContext,
    drawn,
    drawn_spans,
    parse,
    without,
)

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

_PARENT_LINE: Final = PARENT_HEADER + b":"
_STATE_LINE: Final = STATE_HEADER + b":"
_TRACE: Final = 32
_LOW: Final = 16


class Tracer:
    """What `trace` does in each phase."""

    __slots__ = ("_bound", "_follows", "_keep", "keeping")

    def __init__(self, ratio: float, slowest: float, rate: int, *, follows: bool, keep: Keep | None) -> None:
        # Compared as text: the last 16 digits of a trace id are what SDKs draw by, too.
        self._bound = f"{int(ratio * (1 << 64)):0{_LOW}x}"
        self._follows = follows
        self._keep = keep
        self.keeping = Keeping(slowest, rate)

    def opened(self, call: Call) -> None:
        """Go on with the trace of the client, or begin one; what is sent to workers names the attempts' own spans."""
        head = call.head
        folded = head.folded
        given = folded.get(PARENT_HEADER)
        known = None
        if given is not None or STATE_HEADER in folded:
            lines, count = without(_PARENT_LINE, head.forwarded)
            # Of several nobody can tell which is meant.
            if given is not None and count == 1:
                known = parse(given)
            if known is None:
                lines, _ = without(_STATE_LINE, lines)
            call.head = head.forwarding(lines)
        if known is None:
            digits = drawn()
            trace_id = digits[:_TRACE]
            trace = TraceContext(call.id, trace_id, digits[_TRACE:], "", SAMPLED if self._draws(trace_id) else 0)
        else:
            trace_id, parent, flags = known
            if not self._follows:
                flags = (flags & ~SAMPLED) | (SAMPLED if self._draws(trace_id) else 0)
            trace = TraceContext(call.id, trace_id, drawn_spans(), parent, flags)
        call.trace = trace
        CURRENT.set(trace)
        if trace.flags & SAMPLED:
            attend(call, trace)

    def _draws(self, trace_id: str) -> bool:
        bound = self._bound
        return len(bound) > _LOW or trace_id[_LOW:] < bound

    def completed(self, call: Call, outcome: Outcome) -> None:
        """Keep the call's record, or do not."""
        trace = call.trace
        if trace is None:
            return
        why = self.keeping.why(call, outcome)
        if why:
            trace.why = why
            trace.keep = self._keep
