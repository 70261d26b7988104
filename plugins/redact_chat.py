"""For the `redact` plugin: chat and text completions, streamed and whole."""

from __future__ import annotations

from typing import Any

import orjson
from tailrace.plugins.redact_stream import Json, Redaction, Text, objects, place
from tailrace.plugins.redact_text import Arguments
from tailrace.proxy.sse import Event

_TEXTS = ("content", "reasoning", "reasoning_content", "refusal")
_TOKENS = ("logprobs", "token_ids")


class Choices(Redaction):
    """Choices by their index; a finish reason lets go what the choice holds back."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self._choices: dict[Any, Text] = {}
        self._last: Json = {}

    def edit(self, event: Event, body: Json) -> tuple[Event, ...]:
        """Scan each choice's delta."""
        changed = False
        choices = objects(body.get("choices"))
        for choice in choices:
            changed |= self._choice(choice)
        if choices:
            self._last = {key: body[key] for key in ("id", "object", "created", "model") if key in body}
            self._last["text"] = "text" in choices[0]
        return (event.replaced(orjson.dumps(body)),) if changed else (event,)

    def _choice(self, choice: Json) -> bool:
        index = place(choice.get("index", 0))
        text = self._choices.get(index)
        if text is None:
            text = self._choices[index] = Text(self.patterns)
        delta = choice.get("delta")
        changed = False
        if isinstance(delta, dict):
            changed = self._delta(text, delta)
        elif "text" in choice:
            changed = text.scan(choice, "text", "text")
        if choice.get("finish_reason") is not None and text.pending:
            self._let_go(text, choice)
            changed = True
        # The call comes first: a chain of `or` would leave it out.
        return text.mask(choice, _TOKENS) or changed

    def _delta(self, text: Text, delta: Json) -> bool:
        changed = False
        for field in _TEXTS:
            changed |= text.scan(delta, field, field)
        for at, call in enumerate(objects(delta.get("tool_calls"))):
            index = place(call.get("index", at))
            if isinstance(call.get("function"), dict):
                changed |= text.scan(call["function"], "arguments", ("function", index), Arguments)
            if isinstance(call.get("custom"), dict):
                changed |= text.scan(call["custom"], "input", ("custom", index))
        if isinstance(delta.get("function_call"), dict):
            changed |= text.scan(delta["function_call"], "arguments", "function_call", Arguments)
        return changed

    def _let_go(self, text: Text, choice: Json) -> None:
        """Put what a choice holds back at the end of its own delta."""
        for key in text.scanners:
            rest = text.rest(key)
            if not rest:
                continue
            if key == "text":
                choice["text"] = (choice.get("text") or "") + rest
                continue
            delta = choice.get("delta")
            if not isinstance(delta, dict):
                delta = choice["delta"] = {}
            holder, field = _home(delta, key)
            holder[field] = (holder.get(field) or "") + rest

    def left(self) -> tuple[Event, ...]:
        """A chunk for each choice that never finished."""
        out = []
        for index, text in self._choices.items():
            if text.pending:
                choice: Json = {"index": index, "finish_reason": None}
                if not self._last.get("text"):
                    choice["delta"] = {}
                self._let_go(text, choice)
                body = {key: value for key, value in self._last.items() if key != "text"} | {"choices": [choice]}
                out.append(Event(b"data: " + orjson.dumps(body) + b"\n\n"))
        return tuple(out)

    def whole(self, body: Json) -> bool:
        """Every choice's message or text; a transcript has its own fields."""
        changed = False
        for choice in objects(body.get("choices")):
            message = choice.get("message")
            replaced = self.plain_in(choice, "text")
            if isinstance(message, dict):
                replaced |= self._message(message)
            if replaced:
                choice.update({field: None for field in _TOKENS if field in choice})
            changed |= replaced
        return self._transcript(body) or changed

    def _message(self, message: Json) -> bool:
        changed = False
        for field in _TEXTS:
            changed |= self.plain_in(message, field)
        for part in objects(message.get("content")):
            changed |= self.plain_in(part, "text")
        for call in objects(message.get("tool_calls")):
            if isinstance(call.get("function"), dict):
                changed |= self.arguments_in(call["function"], "arguments")
            if isinstance(call.get("custom"), dict):
                changed |= self.plain_in(call["custom"], "input")
        if isinstance(message.get("function_call"), dict):
            changed |= self.arguments_in(message["function_call"], "arguments")
        if isinstance(message.get("audio"), dict):
            changed |= self.plain_in(message["audio"], "transcript")
        return changed

    def _transcript(self, body: Json) -> bool:
        changed = self.plain_in(body, "text")
        for segment in objects(body.get("segments")):
            replaced = self.plain_in(segment, "text")
            if replaced and "tokens" in segment:
                segment["tokens"] = []
            changed |= replaced
        if changed and "words" in body:
            body["words"] = []
        return changed


def _home(delta: Json, key: Any) -> tuple[Json, str]:
    """The object and the field of a delta that belong to a scanner's key."""
    if key == "function_call":
        return _inner(delta, "function_call"), "arguments"
    if isinstance(key, tuple):
        kind, index = key
        calls = delta.get("tool_calls")
        if not isinstance(calls, list):
            calls = delta["tool_calls"] = []
        call = next((call for call in objects(calls) if place(call.get("index")) == index), None)
        if call is None:
            call = {"index": index}
            calls.append(call)
        return _inner(call, kind), "arguments" if kind == "function" else "input"
    return delta, key


def _inner(holder: Json, field: str) -> Json:
    inner = holder.get(field)
    if not isinstance(inner, dict):
        inner = holder[field] = {}
    return inner
