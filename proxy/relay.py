"""From a committed attempt to the client: its head, then the body, whole or as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.proxy import answers
from tailrace.proxy.ending import LastBytes
from tailrace.proxy.fault import Failed, bad_answer
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.signal import Signal
from tailrace.proxy.stream_relay import StreamRelay
from tailrace.proxy.taps import Taps

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call


async def relay(call: Call, attempt: Attempt) -> Outcome:
    """Show a committed attempt to the client, whole or as it comes."""
    head = answers.head_of(attempt)
    if call.route.births:
        answers.note_birth(call, attempt)
    client = call.client
    if client.started and not attempt.streaming:
        # A heartbeat has begun an event stream, and this is none.
        raise Failed(bad_answer("it is no event stream"))
    whole = attempt.ended and not attempt.streaming
    taps = Taps.of(call, head, whole=whole) if call.chain.taps or call.trail is not None else None
    if taps is not None and not attempt.streaming and not attempt.ended and taps.need_whole:
        raise Failed(bad_answer("it is too large for its model to be renamed"))
    if not client.started:
        call.answer(head)
    if whole:
        body = attempt.held[0] if len(attempt.held) == 1 else b"".join(attempt.held)
        if call.harvest is not None:
            body = call.harvest.body(body)
        if taps is not None:
            body = taps.body(body, head.status)
        if call.chain.pipeline.on_ending:
            ending = Outcome(Ending.COMPLETED, head.status)
            ending.delivered_bytes = len(body)
            let_go: Signal[None] = Signal()
            if LastBytes(call, let_go.settle).held(ending):
                await let_go
        client.reply(head, body)
        return Outcome(Ending.COMPLETED, head.status)
    stream = StreamRelay(call, attempt, taps)
    connection = attempt.connection
    if connection is not None and connection.sink is attempt:
        # From here on only taps are plugins' code that runs as bytes come.
        connection.stride = call.stride if taps is not None and call.chain.pipeline.on_stream else None
    client.begin(head)
    stream.attach()
    return await stream.done
