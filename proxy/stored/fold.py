"""A stream's events as the unary answer that the same request would have had."""

from __future__ import annotations

from typing import Any, Final

import orjson
from tailrace.proxy.dialects import OVER
from tailrace.proxy.sse import Splitter
from tailrace.proxy.stored.fold_messages import fold_messages

_TEXTS: Final = ("content", "reasoning", "reasoning_content", "refusal")
_DELTA: Final = frozenset({*_TEXTS, "role", "tool_calls", "function_call"})
_HEAD: Final = ("id", "created", "model", "service_tier", "system_fingerprint")


class Unfit(Exception):  # noqa: N818 - a fact about a stream
    """There is something in a stream that has no place in a unary answer, or something is missing."""


def fold(route: str, stream: bytes) -> dict[str, Any] | None:
    """The unary answer of a whole stream of chat, completions or messages; None where it has none."""
    splitter = Splitter(len(stream) + 1)
    try:
        events: list[Any] = []
        over = False
        for event in (*splitter.feed(stream), *splitter.finish()):
            data = event.data
            if data == OVER:
                over = True
            elif data:
                events.append(orjson.loads(data))
        if route == "messages":
            return fold_messages(events)
        if not over:
            return None
        return _folded(events, _Chat if route == "chat" else _Completion)
    except (Unfit, orjson.JSONDecodeError, AttributeError, TypeError, KeyError, IndexError):
        return None


class _Choice:
    """One choice so far."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.reason: str | None = None
        self.stop: Any = None

    def take(self, choice: dict[str, Any]) -> None:
        """Note what every kind of choice has."""
        if choice.get("logprobs") or choice.get("token_ids"):
            raise Unfit
        if choice.get("finish_reason"):
            self.reason = choice["finish_reason"]
            self.stop = choice.get("stop_reason")


class _Completion(_Choice):
    kind = "text_completion"

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.text: list[str] = []

    def take(self, choice: dict[str, Any]) -> None:
        super().take(choice)
        self.text.append(choice.get("text") or "")

    def folded(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "text": "".join(self.text),
            "logprobs": None,
            "finish_reason": self.reason,
            "stop_reason": self.stop,
        }


class _Chat(_Choice):
    kind = "chat.completion"

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.texts: dict[str, list[str]] = {}
        self.tools: dict[int, dict[str, Any]] = {}

    def take(self, choice: dict[str, Any]) -> None:
        super().take(choice)
        delta = choice.get("delta") or {}
        if not _DELTA.issuperset(delta) and any(value for name, value in delta.items() if name not in _DELTA):
            raise Unfit
        if delta.get("function_call"):
            raise Unfit
        for name in _TEXTS:
            text = delta.get(name)
            if text is not None:
                self.texts.setdefault(name, []).append(text)
        for call in delta.get("tool_calls") or ():
            self._take_tool(call)

    def _take_tool(self, call: dict[str, Any]) -> None:
        """One piece of a tool call; the first of each has its name."""
        function = call.get("function") or {}
        known = self.tools.get(call["index"])
        if known is None:
            known = self.tools[call["index"]] = {
                "id": call["id"],
                "type": call.get("type") or "function",
                "function": {"name": function["name"], "arguments": ""},
            }
        known["function"]["arguments"] += function.get("arguments") or ""

    def folded(self) -> dict[str, Any]:
        texts = {name: "".join(parts) for name, parts in self.texts.items()}
        message: dict[str, Any] = {"role": "assistant", "content": texts.pop("content", None), "refusal": None, **texts}
        if self.tools:
            message["tool_calls"] = [self.tools[index] for index in sorted(self.tools)]
            message["content"] = message["content"] or None
        return {
            "index": self.index,
            "message": message,
            "logprobs": None,
            "finish_reason": self.reason,
            "stop_reason": self.stop,
        }


def _folded(events: list[Any], kind: type[_Chat] | type[_Completion]) -> dict[str, Any]:
    head: dict[str, Any] = {}
    choices: dict[int, _Chat | _Completion] = {}
    usage: Any = None
    for event in events:
        if event.get("error"):
            raise Unfit
        for name in _HEAD:
            if event.get(name) is not None:
                head.setdefault(name, event[name])
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            index = choice.get("index") or 0
            if index not in choices:
                choices[index] = kind(index)
            choices[index].take(choice)
    if not choices or any(choice.reason is None for choice in choices.values()):
        raise Unfit
    answer = {"id": head.pop("id", ""), "object": kind.kind, **head}
    answer["choices"] = [choices[index].folded() for index in sorted(choices)]
    if usage is not None:
        answer["usage"] = usage
    return answer
