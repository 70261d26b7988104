"""The events of Anthropic's API as one message."""

from __future__ import annotations

from typing import Any, Final

import orjson
from tailrace.proxy.stored.long_numbers import has_long_number

_TEXTS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def fold_messages(events: list[Any]) -> dict[str, Any] | None:
    """The message, None where events are missing or unknown."""
    message: dict[str, Any] | None = None
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}
    for event in events:
        match event.get("type"):
            case "message_start":
                message = dict(event["message"])
            case "content_block_start":
                block = blocks[event["index"]] = dict(event["content_block"])
                if block.get("type") not in ("text", "thinking", "tool_use"):
                    return None
            case "content_block_delta":
                if not _take(blocks[event["index"]], inputs.setdefault(event["index"], []), event["delta"]):
                    return None
            case "message_delta":
                if message is None:
                    return None
                message.update(event["delta"])
                message["usage"] = {**(message.get("usage") or {}), **(event.get("usage") or {})}
            case "message_stop":
                return _closed(message, blocks, inputs)
            case "ping" | "content_block_stop":
                pass
            case _:
                return None
    return None


def _take(block: dict[str, Any], pieces: list[str], delta: dict[str, Any]) -> bool:
    """Add a piece to a block; False where it is of an unknown kind."""
    if delta.get("type") == "input_json_delta":
        pieces.append(delta["partial_json"])
        return True
    name = _TEXTS.get(delta.get("type", ""))
    if name is None:
        return False
    block[name] = (block.get(name) or "") + delta[name]
    return True


def _closed(
    message: dict[str, Any] | None, blocks: dict[int, dict[str, Any]], inputs: dict[int, list[str]]
) -> dict[str, Any] | None:
    if message is None or not message.get("stop_reason"):
        return None
    for index, block in blocks.items():
        written = "".join(inputs.get(index, ()))
        if block["type"] == "tool_use" and written:
            if has_long_number(written.encode()):
                return None
            block["input"] = orjson.loads(written)
    message["content"] = [blocks[index] for index in sorted(blocks)]
    return message
