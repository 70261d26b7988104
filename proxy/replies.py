"""Answers that come from the gateway itself: a plugin's Reply, the model list, what it does not serve."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

import orjson
from tailrace.proxy.fault import Failed, Reject, Whose, bad_answer
from tailrace.proxy.head import streaming_head
from tailrace.proxy.identity import Identity, Names, allows
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.reply import Reply
from tailrace.proxy.sse import ends_event
from tailrace.proxy.taps import Taps

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import ModelEntry


async def send_reply(call: Call, reply: Reply) -> Outcome:
    """Send a Reply through the answer phases."""
    head, client = reply.head, call.client
    events = (head.get(b"content-type") or b"").startswith(b"text/event-stream")
    if client.started and not events:
        # A heartbeat has begun an event stream, and this is none.
        raise Failed(bad_answer("it is no event stream"))
    call.source = reply.source
    call.usage = reply.usage
    taps = Taps.of(call, head, whole=True)
    if not client.started:
        call.answer(head)
    if isinstance(reply.body, bytes):
        body = taps.body(reply.body, head.status) if taps is not None else reply.body
        if client.started:
            client.send(body)
            client.end()
        else:
            client.reply(head, body)
        return Outcome(Ending.COMPLETED, head.status)
    streaming_head(head)
    client.begin(head)
    clock = client.service.clock
    call.beaten_at = clock.now
    call.between_events = events
    end = b""
    send = client.send if taps is None else taps.sender(client.send)
    try:
        if call.head.method == "HEAD":
            client.cut()  # behind its head comes nothing
            return Outcome(Ending.COMPLETED, head.status)
        async for piece in reply.body:
            await client.drained()
            send(piece)
            # The next heartbeat waits for an interval of silence, and for the end of an event.
            call.beaten_at = clock.now
            if events:
                end = (end + piece[-4:])[-4:]
                whole = ends_event(end)
                call.between_events = whole if taps is None else taps.between_events(whole)
    finally:
        # Not left to the garbage collector: the client may be gone while the generator stands at a yield.
        if isinstance(reply.body, AsyncGenerator):
            await reply.body.aclose()
    outcome = Outcome(Ending.COMPLETED, head.status)
    if taps is not None:
        taps.finish(outcome)
    client.end()
    return outcome


def list_models(call: Call) -> Reply:
    """GET /v1/models: what the caller may use."""
    models, usable = call.chain.models, _usable(call)
    entries = [entry for entry in (*models.entries.values(), *models.adapters.values()) if allows(usable, entry.name)]
    listing = {"object": "list", "data": [_model_object(call, entry, usable) for entry in entries]}
    return Reply(200, orjson.dumps(listing), source="models")


def show_model(call: Call) -> Reply:
    """GET /v1/models/{id}: what the caller may not use is not there."""
    name, usable = call.head.path.removeprefix("/v1/models/"), _usable(call)
    entry = call.chain.models.resolve(name) if allows(usable, name) else None
    if entry is None:
        raise Reject(404, "model_not_found", f"The model '{name[:128]}' does not exist.", param="model")
    return Reply(200, orjson.dumps(_model_object(call, entry, usable)), source="models")


def _usable(call: Call) -> Names:
    identity = call.fact(Identity)
    return None if identity is None else identity.models


def _model_object(call: Call, entry: ModelEntry, usable: Names) -> dict[str, object]:
    parent = entry.pool.adapters().get(entry.served) if entry.adapter else None
    return {
        "id": entry.name,
        "object": "model",
        "created": call.chain.created,
        "owned_by": "tailrace",
        "parent": parent if parent is not None and allows(usable, parent) else None,
    }


def not_found(call: Call) -> Reply:
    """A path that leads nowhere."""
    raise Reject(404, "not_found", f"There is no {call.head.method} {call.head.path[:128]} here.", kind="unmatched")


def options(call: Call) -> Reply:
    """OPTIONS without a plugin that knows better."""
    return Reply(204, b"", headers=[(b"allow", call.chain.routes.allowed(call.head.path))], source="options")


def unsupported(what: str) -> Callable[[Call], Reply]:
    """Refuse a family of paths that needs state a gateway does not keep."""

    def refuse(call: Call) -> Reply:
        raise Reject(501, "not_supported", f"This gateway does not serve {what}.", whose=Whose.GATEWAY)

    return refuse
