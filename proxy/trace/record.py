"""What is remembered of a call that is over: stamps, names and its outcome, nothing that a client or an engine wrote.

A record is a plain tuple of numbers, texts and such tuples, in the order of `Record` in `told`. Python's collector
looks at such a tuple once and leaves it alone from then on, however many there are; and it goes over a socket as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tailrace.proxy.fault import Whose
from tailrace.proxy.outcome import AttemptEnd, Ending
from tailrace.proxy.service_class import ServiceClass

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.trace.context import TraceContext

Raw = tuple[Any, ...]
_NAME: Final = 128
_WHY: Final = 200
_ENDINGS: Final[dict[Ending, str]] = {ending: str(ending.value) for ending in Ending}
_ENDS: Final[dict[AttemptEnd, str]] = {end: str(end.value) for end in AttemptEnd}
FINISHED: Final = 14
"""Where in a record the moment of its end is."""


def raw_of(call: Call, outcome: Outcome) -> Raw:
    """The record of a call that is over, its stages counted."""
    entry = call.entry
    trace = call.trace
    fact = call.fact(ServiceClass)
    usage = outcome.usage
    stages = outcome.stages
    ending = outcome.ending
    fault = outcome.fault
    tries = call.tries
    if len(tries) == 1:
        tried: Raw = (_tried(tries[0]),)
    else:
        tried = tuple([_tried(attempt) for attempt in tries])
    return (
        call.id,
        None if trace is None else (trace.trace_id, trace.parent, trace.flags, trace.spans, trace.why, _phases(trace)),
        call.head.method,
        call.route.name,
        call.route.path,
        call.model[:_NAME],
        "" if entry is None else entry.served,
        call.stream,
        "" if fact is None else fact.name,
        call.started_ns,
        call.received_ns,
        call.waited_ns,
        call.requeued_ns,
        outcome.first_content_ns,
        outcome.finished_ns,
        outcome.status,
        "completed" if ending is Ending.COMPLETED else _ENDINGS[ending],
        None if fault is None else _fault(fault),
        None if usage is None else (usage.prompt, usage.completion, usage.cached, usage.estimated),
        len(call.raw),
        outcome.delivered_bytes,
        call.source,
        None
        if stages is None
        else (stages.network, stages.queue, stages.prefill, stages.decode, stages.gateway, stages.retry),
        tried,
    )


def _phases(trace: TraceContext) -> Raw:
    phases = trace.phases
    return () if phases is None else tuple(phases)


def _tried(attempt: Attempt) -> Raw:
    end, fault = attempt.end, attempt.fault
    return (
        attempt.number,
        attempt.why,
        attempt.worker.name,
        attempt.entry.served,
        attempt.started_ns,
        attempt.sent_ns,
        attempt.first_content_ns,
        attempt.ended_ns,
        attempt.status,
        attempt.streaming,
        "won" if end is AttemptEnd.WON else "" if end is None else _ENDS[end],
        None if fault is None else _fault(fault),
    )


def _fault(fault: Fault) -> Raw:
    """Its names, and the cause where the network has said it: whatever else a fault says may repeat a prompt."""
    return fault.kind, str(fault.whose), fault.code, fault.why[:_WHY] if fault.whose is Whose.NETWORK else ""
