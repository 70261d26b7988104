"""A text as the answer of a model: whole or as a stream, in the shape of the API that was asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import orjson
from tailrace.proxy.outcome import Usage
from tailrace.proxy.reply import Reply

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

SPOKEN: Final = "message"
"""The source of such answers."""
_ROUTES: Final = frozenset({"chat", "completions", "responses", "messages"})
_NO_TOKENS: Final = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
_NONE_USED: Final = {"input_tokens": 0, "output_tokens": 0}


def spoken(call: Call, text: str, source: str = SPOKEN) -> Reply | None:
    """The reply; None where answers are no text."""
    route = call.route.name
    if route not in _ROUTES or call.route.pinned:
        return None
    shape = {"chat": _chat, "completions": _completion, "responses": _response, "messages": _message}[route]
    body, events = shape(call.id, call.model, text)
    if not call.stream:
        return Reply(200, orjson.dumps(body), usage=Usage(), source=source)
    return Reply(200, b"".join(events), content_type=b"text/event-stream; charset=utf-8", usage=Usage(), source=source)


def _data(body: Any) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(body)


def _named(body: dict[str, Any]) -> bytes:
    return b"event: %b\n" % body["type"].encode() + _data(body)


def _chat(call_id: str, model: str, text: str) -> tuple[Any, list[bytes]]:
    head = {"id": f"chatcmpl-{call_id}", "created": int(time.time()), "model": model}
    said = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": "stop"}
    body = {**head, "object": "chat.completion", "choices": [choice], "usage": _NO_TOKENS}

    def chunk(delta: dict[str, str], finish: str | None) -> bytes:
        part = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({**head, "object": "chat.completion.chunk", "choices": [part]})

    return body, [chunk(said, None), chunk({}, "stop"), b"data: [DONE]\n\n"]


def _completion(call_id: str, model: str, text: str) -> tuple[Any, list[bytes]]:
    head = {"id": f"cmpl-{call_id}", "object": "text_completion", "created": int(time.time()), "model": model}
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}
    return {**head, "choices": [choice], "usage": _NO_TOKENS}, [
        _data({**head, "choices": [choice]}),
        b"data: [DONE]\n\n",
    ]


def _message(call_id: str, model: str, text: str) -> tuple[Any, list[bytes]]:
    head = {"id": f"msg_{call_id}", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}
    block = {"type": "text", "text": text}
    body = {**head, "content": [block], "stop_reason": "end_turn", "usage": _NONE_USED}
    begun: dict[str, Any] = {**head, "content": [], "stop_reason": None, "usage": _NONE_USED}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": _NONE_USED},
        {"type": "message_stop"},
    ]
    return body, [_named(event) for event in events]


def _response(call_id: str, model: str, text: str) -> tuple[Any, list[bytes]]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": f"msg_{call_id}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    head = {
        "id": f"resp_{call_id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }
    used = {
        **_NONE_USED,
        "total_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    body = {**head, "status": "completed", "output": [item], "usage": used}
    begun = {**head, "status": "in_progress", "output": []}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": body},
    ]
    return body, [_named({**event, "sequence_number": number}) for number, event in enumerate(events)]
