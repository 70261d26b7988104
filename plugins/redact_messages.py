"""For the `redact` plugin: Anthropic's messages, streamed and whole."""

from __future__ import annotations

from typing import Any

import orjson
from tailrace.plugins.redact_stream import Json, Redaction, Text, objects, place
from tailrace.plugins.redact_text import Arguments, Plain
from tailrace.proxy.sse import Event

# By a delta's type: the field that holds its text, and how that is read.
_DELTAS: dict[str, tuple[str, type[Plain | Arguments]]] = {
    "text_delta": ("text", Plain),
    "thinking_delta": ("thinking", Plain),
    "input_json_delta": ("partial_json", Arguments),
}


class Messages(Redaction):
    """Content blocks by their index; the end of a block lets go what it holds back, in a delta of its own."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self._blocks: dict[Any, Text] = {}

    def edit(self, event: Event, body: Json) -> tuple[Event, ...]:
        """Scan a block's start and deltas."""
        kind, index = body.get("type"), place(body.get("index"))
        changed = False
        before: tuple[Event, ...] = ()
        if kind == "content_block_delta" and isinstance(body.get("delta"), dict):
            changed = self._delta(self._block(index), body["delta"])
        elif kind == "content_block_start" and isinstance(body.get("content_block"), dict):
            changed = self._start(self._block(index), body["content_block"])
        elif kind == "content_block_stop":
            before = self._let_go(index)
        elif kind in ("message_delta", "message_stop"):
            before = self.left()
        return (*before, event.replaced(orjson.dumps(body)) if changed else event)

    def _block(self, index: Any) -> Text:
        text = self._blocks.get(index)
        if text is None:
            text = self._blocks[index] = Text(self.patterns)
        return text

    def _delta(self, text: Text, delta: Json) -> bool:
        kind = delta.get("type")
        if isinstance(kind, str) and kind in _DELTAS:
            field, how = _DELTAS[kind]
            return text.scan(delta, field, kind, how)
        citation = delta.get("citation")
        return isinstance(citation, dict) and self.plain_in(citation, "cited_text")

    def _start(self, text: Text, block: Json) -> bool:
        changed = text.scan(block, "text", "text_delta")
        changed |= text.scan(block, "thinking", "thinking_delta")
        return self.arguments_in(block, "input") or changed

    def _let_go(self, index: Any) -> tuple[Event, ...]:
        text = self._blocks.get(index)
        out = []
        for kind in () if text is None else tuple(text.scanners):
            rest = text.rest(kind) if text is not None else ""
            if rest:
                field = _DELTAS[str(kind)][0]
                body = {"type": "content_block_delta", "delta": {"type": kind, field: rest}, "index": index}
                out.append(Event(b"event: content_block_delta\ndata: " + orjson.dumps(body) + b"\n\n"))
        return tuple(out)

    def left(self) -> tuple[Event, ...]:
        """What blocks that never stopped hold back."""
        return tuple(event for index in self._blocks for event in self._let_go(index))

    def whole(self, body: Json) -> bool:
        """Every content block."""
        changed = False
        for block in objects(body.get("content")):
            changed |= self.plain_in(block, "text") | self.plain_in(block, "thinking")
            changed |= self.arguments_in(block, "input")
            for citation in objects(block.get("citations")):
                changed |= self.plain_in(citation, "cited_text")
        return changed
