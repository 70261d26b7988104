"""A unary answer as the stream that the same request would have had, in pieces of some size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson
from tailrace.proxy.stored.unfold_messages import unfold_messages

END: Final = b"data: [DONE]\n\n"
_AT: Final = "\x00"
"""Where a piece of text goes in the form that all pieces of one text have."""
_TEXTS: Final = ("reasoning", "reasoning_content", "content", "refusal")
_HEAD: Final = ("id", "created", "model", "service_tier", "system_fingerprint")


def unfold(route: str, answer: dict[str, Any], step: int, *, usage: bool) -> list[bytes]:
    """The events of a stream of chat, completions or messages, each text in pieces of `step` characters.

    With `usage` there is an event that has it, as for clients that ask for one; of messages, each stream has it.
    """
    if route == "messages":
        return unfold_messages(answer, step)
    kind = "text_completion" if route == "completions" else "chat.completion.chunk"
    head = {"id": answer.get("id"), "object": kind} | {
        name: answer[name] for name in _HEAD if name != "id" and answer.get(name) is not None
    }
    form = orjson.dumps({**head, "choices": [_AT]}).split(orjson.dumps(_AT))
    before, after = b"data: " + form[0], form[1] + b"\n\n"
    choose: Callable[[dict[str, Any], int], Iterator[bytes]] = _completion if route == "completions" else _chat
    events = [before + choice + after for each in answer["choices"] for choice in choose(each, step)]
    if usage and answer.get("usage") is not None:
        events.append(b"data: " + orjson.dumps({**head, "choices": [], "usage": answer["usage"]}) + b"\n\n")
    events.append(END)
    return events


def pieces_of(text: str, step: int) -> Iterator[bytes]:
    """A text as JSON strings of so many characters."""
    for at in range(0, len(text), step):
        yield orjson.dumps(text[at : at + step])


def _choice(index: int, **rest: Any) -> bytes:
    return orjson.dumps({"index": index, **rest})


def _with(text: str, step: int, form: bytes) -> Iterator[bytes]:
    """A form that has a mark in place of its text, once for each piece of that."""
    before, after = form.split(orjson.dumps(_AT))
    for piece in pieces_of(text, step):
        yield before + piece + after


def _completion(choice: dict[str, Any], step: int) -> Iterator[bytes]:
    index = choice.get("index", 0)
    yield from _with(choice["text"], step, _choice(index, text=_AT, logprobs=None, finish_reason=None))
    yield _choice(
        index, text="", logprobs=None, finish_reason=choice["finish_reason"], stop_reason=choice.get("stop_reason")
    )


def _chat(choice: dict[str, Any], step: int) -> Iterator[bytes]:
    index, message = choice.get("index", 0), choice["message"]

    def delta(**content: Any) -> bytes:
        return _choice(index, delta=content, logprobs=None, finish_reason=None)

    yield delta(role="assistant", content="")
    for name in _TEXTS:
        if message.get(name):
            yield from _with(message[name], step, delta(**{name: _AT}))
    for number, tool in enumerate(message.get("tool_calls") or ()):
        function = tool["function"]
        begun = {"index": number, "id": tool["id"], "type": tool.get("type", "function")}
        yield delta(tool_calls=[{**begun, "function": {"name": function["name"], "arguments": ""}}])
        form = delta(tool_calls=[{"index": number, "function": {"arguments": _AT}}])
        yield from _with(function["arguments"], step, form)
    yield _choice(
        index,
        delta={},
        logprobs=None,
        finish_reason=choice["finish_reason"],
        stop_reason=choice.get("stop_reason"),
    )
