"""The request as a worker gets it."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

import orjson
from tailrace.proxy.harvest import OPTIONS
from tailrace.proxy.wire import BODILESS, VERBATIM

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.harvest import Harvest


def request(call: Call, attempt: Attempt) -> tuple[bytes, bytes]:
    """Head and body for one attempt."""
    worker, head, body = attempt.worker, call.head, call.body
    served = attempt.entry.served_json
    if served is None and attempt.entry is not call.entry:
        served = orjson.dumps(attempt.entry.served)  # the client wrote another model's name
    harvest = call.harvest
    if harvest is not None and (worker.strict or attempt.unasked) and harvest.injected and body is not None:
        attempt.unasked = True
        content = harvest.render_unasked(body, served)
    elif body is None:
        content = (
            call.raw
            if served is None or call.form is None
            else call.form.replaced(b"model", orjson.loads(served).encode())
        )
    elif served is not None:
        content = body.render({"model": served})
    else:
        content = body.render() if body.edited else call.raw
    told, call_id = worker.headers, call.id
    if call.time is not None:
        told += call.time.lines(monotonic_ns())
    if call.trace is not None:
        told += call.trace.line(attempt.number)
    if attempt.number > 1 or call.tried_before:
        told += b"x-tailrace-attempt: %d\r\n" % (attempt.number + call.tried_before)
        if attempt.number > 1:
            call_id = f"{call_id}-{attempt.number}"  # an engine may still be busy with the attempt before
    lines = b"%b%b HTTP/1.1\r\n%b%bx-request-id: %b\r\n%baccept-encoding: identity\r\ncontent-length: %d\r\n\r\n" % (
        worker.post if head.method == "POST" else worker.request_line(head.method),
        head.target,
        told,
        call.peer.forwarded,
        call_id.encode(),
        head.forwarded,
        len(content),
    )
    return lines, content


def refuses_options(attempt: Attempt, fault: Fault) -> bool:
    """Whether a worker may have refused what plugins ask of engines, and not what its client asked.

    Engines repeat what they refuse, so that a client's own words may be those: only an answer without is a proof.
    """
    if fault.status not in (400, 422):
        return False
    harvest = attempt.call.harvest
    if harvest is None or not harvest.injected or attempt.unasked:
        return False
    text = b"".join(attempt.held)
    return any(name in text for name in added(harvest))


def added(harvest: Harvest) -> list[bytes]:
    """What a worker names that refuses what plugins had added, and that the client has not named itself."""
    own = harvest.original
    options = ((b"include_usage", harvest.strip_usage), (b"continuous_usage_stats", harvest.strip_running))
    names = [name for name, ours in options if ours and (own is None or name not in own)]
    if names and own is None:
        names.append(OPTIONS.encode())
    if harvest.asked_ids:
        names.append(b"return_token_ids")
    return names


def manner(call: Call) -> int:
    """What is unusual about the answer to a call whose body is no JSON."""
    bits = VERBATIM if call.route.entry is not None else 0
    return bits | BODILESS if call.head.method == "HEAD" else bits
