"""For the `redact` plugin: the Responses API, streamed and whole.

Its last events repeat what the deltas said: they are redacted as wholes, which gives the same text. A delta that had to
be added moves the sequence numbers of all that follow.
"""

from __future__ import annotations

from typing import Any

import orjson
from tailrace.plugins.redact_stream import Json, Redaction, Text, objects, place
from tailrace.plugins.redact_text import Arguments, Plain
from tailrace.proxy.sse import Event

# By what stands before `.delta` and `.done`: the field of the latter, and how the text is read.
_TEXTS: dict[str, tuple[str, type[Plain | Arguments]]] = {
    "response.output_text": ("text", Plain),
    "response.refusal": ("refusal", Plain),
    "response.reasoning_text": ("text", Plain),
    "response.reasoning_summary_text": ("text", Plain),
    "response.function_call_arguments": ("arguments", Arguments),
    "response.mcp_call_arguments": ("arguments", Arguments),
    "response.custom_tool_call_input": ("input", Plain),
    "response.code_interpreter_call_code": ("code", Plain),
    "response.audio.transcript": ("transcript", Plain),
}
_PLACE = ("output_index", "content_index", "summary_index", "item_id")
_LAST = ("response.completed", "response.incomplete")


class Responses(Redaction):
    """Texts by their place in the output; the end of a text lets go what it holds back, in a delta of its own."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self._texts: dict[Any, Text] = {}
        self._deltas: dict[Any, Json] = {}
        self._shift = 0

    def edit(self, event: Event, body: Json) -> tuple[Event, ...]:
        """Scan deltas, and redact what repeats them."""
        kind = str(body.get("type"))
        name, _, stage = kind.rpartition(".")
        before: tuple[Event, ...] = ()
        changed = False
        if name in _TEXTS:
            key = (name, *(place(body.get(field)) for field in _PLACE))
            if stage == "delta":
                changed = self._delta(key, body)
            elif stage == "done":
                before = self._let_go(key, body.get("sequence_number"))
                changed = self._done(name, body)
        elif isinstance(body.get("part"), dict):
            changed = self._part(body["part"])
        elif isinstance(body.get("item"), dict):
            changed = self._item(body["item"])
        elif isinstance(body.get("response"), dict):
            if kind in _LAST:
                before = self.left(body.get("sequence_number"))
            changed = self.whole(body["response"])
        if self._shift and isinstance(body.get("sequence_number"), int):
            body["sequence_number"] += self._shift
            changed = True
        return (*before, event.replaced(orjson.dumps(body)) if changed else event)

    def _delta(self, key: Any, body: Json) -> bool:
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = Text(self.patterns)
        changed = text.scan(body, "delta", key, _TEXTS[key[0]][1])
        if text.pending:
            self._deltas[key] = body
        return text.mask(body, ("logprobs",), list) or changed

    def _done(self, name: str, body: Json) -> bool:
        field, how = _TEXTS[name]
        changed = self.arguments_in(body, field) if how is Arguments else self.plain_in(body, field)
        if changed and body.get("logprobs"):
            body["logprobs"] = []
        return changed

    def _let_go(self, key: Any, number: Any) -> tuple[Event, ...]:
        text = self._texts.get(key)
        rest = text.rest(key) if text is not None else ""
        if text is None or not rest:
            return ()
        body = {**self._deltas[key], "delta": rest}
        if "logprobs" in body:
            body["logprobs"] = []
            text.mask(body, ("logprobs",), list)
        if isinstance(number, int):
            body["sequence_number"] = number + self._shift
            self._shift += 1
        return (Event(b"event: %b.delta\ndata: %b\n\n" % (key[0].encode(), orjson.dumps(body))),)

    def left(self, number: Any = None) -> tuple[Event, ...]:
        """What texts that were never done hold back."""
        return tuple(event for key in self._texts for event in self._let_go(key, number))

    def _part(self, part: Json) -> bool:
        changed = self.plain_in(part, "text") | self.plain_in(part, "refusal") | self.plain_in(part, "transcript")
        if changed and part.get("logprobs"):
            part["logprobs"] = []
        return changed

    def _item(self, item: Json) -> bool:
        changed = self.arguments_in(item, "arguments")
        for field in ("input", "code", "output", "text"):
            changed |= self.plain_in(item, field)
        for field in ("content", "summary"):
            for part in objects(item.get(field)):
                changed |= self._part(part)
        return changed

    def whole(self, body: Json) -> bool:
        """Every item of the output."""
        changed = False
        for item in objects(body.get("output")):
            changed |= self._item(item)
        return self.plain_in(body, "output_text") or changed
