"""A message as the events of Anthropic's API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

_EMPTY: Final[dict[str, dict[str, Any]]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


def unfold_messages(message: dict[str, Any], step: int) -> list[bytes]:
    """The events, from `message_start` to `message_stop`."""
    usage = message.get("usage") or {}
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    begun["usage"] = {**usage, "output_tokens": 0}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(message["content"]):
        events.append({"type": "content_block_start", "index": index, "content_block": _begun(block)})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in _deltas(block, step)]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": message.get("stop_sequence")}
    events += [{"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]
    return [b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event)) for event in events]


def _begun(block: dict[str, Any]) -> dict[str, Any]:
    return {**block, "input": {}} if block["type"] == "tool_use" else _EMPTY[block["type"]]


def _deltas(block: dict[str, Any], step: int) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            for piece in _cut(block["text"], step):
                yield {"type": "text_delta", "text": piece}
        case "thinking":
            for piece in _cut(block["thinking"], step):
                yield {"type": "thinking_delta", "thinking": piece}
            if block.get("signature"):
                yield {"type": "signature_delta", "signature": block["signature"]}
        case _:
            for piece in _cut(orjson.dumps(block.get("input") or {}).decode(), step):
                yield {"type": "input_json_delta", "partial_json": piece}


def _cut(text: str, step: int) -> Iterator[str]:
    return (text[at : at + step] for at in range(0, len(text), step))
