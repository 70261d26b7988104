"""What is done only for calls that workers record, too: their plugins are timed, and may go on with the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from tailrace.proxy.trace.timed import timed

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.trace.context import TraceContext

_twins: list[tuple[Chain, Chain]] = []
_TWINS = 4


def attend(call: Call, trace: TraceContext) -> None:
    """Time the call's plugins, and be the current span of OpenTelemetry's API for what they do.

    That is set in the context that is the call's own, and gone with it: nothing has to be detached.
    """
    trace.phases = []
    call.chain = _twin(call.chain)
    span = SpanContext(
        int(trace.trace_id, 16), int(trace.span_id(), 16), is_remote=False, trace_flags=TraceFlags(trace.flags)
    )
    context.attach(set_span_in_context(NonRecordingSpan(span)))


def _twin(chain: Chain) -> Chain:
    for plain, twin in _twins:
        if plain is chain:
            return twin
    twin = timed(chain)
    _twins.append((chain, twin))
    # Of chains that were replaced nobody begins a call any more.
    del _twins[:-_TWINS]
    return twin
