"""What must be equal between two answers that differ in ids, times and text."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

# Strings whose value is the engine's to choose. Everything else must be the same letter for letter.
_FREE = {
    "id", "content", "text", "delta", "item_id", "token", "token_strs",
    "arguments", "system_fingerprint", "prompt", "root", "embedding",
}  # fmt: skip
_FIXED_NUMBERS = {"index", "code", "content_index", "output_index", "max_output_tokens", "max_model_len", "top_p"}


def shape(value: Any, key: str = "") -> Any:
    """A value with what may differ replaced by its type; keys keep their order, runs of equal items count once."""
    if isinstance(value, dict):
        return [(name, shape(item, name)) for name, item in value.items()]
    if isinstance(value, list):
        return [item for item, _ in groupby(shape(item, key) for item in value)]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if key in _FIXED_NUMBERS else "number"
    return "text" if key in _FREE else value


def head_shape(lines: list[bytes]) -> list[bytes]:
    """A head with dates, ids and lengths blanked."""
    blanked = (re.sub(rb"^(date|x-request-id|content-length): .*", rb"\1: *", line) for line in lines)
    return list(blanked)


def event_shapes(body: bytes) -> list[Any]:
    """The events of a stream: their `event:` lines and the shapes of their JSON, runs of equal ones counted once."""
    shapes = []
    for event in body.split(b"\n\n"):
        if not event:
            continue
        *names, data = event.split(b"\n")
        text = data.removeprefix(b"data: ")
        assert data.startswith(b"data: "), event
        shapes.append((names, shape(json.loads(text)) if text.startswith(b"{") else text))
    return [one for one, _ in groupby(shapes)]
