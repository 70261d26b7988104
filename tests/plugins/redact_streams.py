"""Streams in the shapes that a real engine sends, and what a client puts together from them."""

from __future__ import annotations

from collections import defaultdict

import orjson
from fakes import capture, event
from tailrace.plugins.redact import Config, Redact
from tailrace.plugins.redact_chat import Choices
from tailrace.plugins.redact_messages import Messages
from tailrace.plugins.redact_responses import Responses
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.sse import Splitter
from tailrace.proxy.testing import cut

PATTERNS = Redact(Config())._patterns
DONE = event("[DONE]")
SECRET = "Write to bob.smith@mail.example.com or ann@x.org, card 4111 1111 1111 1111."
HIDDEN = "Write to [email] or [email], card [credit_card]."
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
TAPS = {"chat": Choices, "completions": Choices, "messages": Messages, "responses": Responses}


def through(dialect: str, stream: list[bytes], feed="whole") -> list[bytes]:
    """The events that a tap makes of a stream."""
    splitter, tap = Splitter(), TAPS[dialect](PATTERNS)
    out = []
    for piece in cut(stream, feed):
        for one in splitter.feed(piece):
            out += tap.feed(one)
    for one in splitter.finish():
        out += tap.feed(one)
    out += tap.finish(Outcome(Ending.COMPLETED, 200))
    return [one.raw for one in out]


def chat_event(delta: dict, index: int = 0, finish: str | None = None, **more) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None, **more}
    return event(
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    )


def chat(pieces, finish_with: str = "") -> list[bytes]:
    end = {"content": finish_with} if finish_with else {}
    return [
        chat_event({"role": "assistant", "content": ""}),
        *[chat_event({"content": piece}) for piece in pieces],
        chat_event(end, finish="stop"),
        DONE,
    ]


def completions(pieces) -> list[bytes]:
    def one(text: str, finish: str | None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return event({"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]})

    return [*[one(piece, None) for piece in pieces], one("", "length"), DONE]


def messages(pieces, kind: str = "text") -> list[bytes]:
    delta, field, block = {
        "text": ("text_delta", "text", {"type": "text", "text": ""}),
        "thinking": ("thinking_delta", "thinking", {"type": "thinking", "thinking": ""}),
        "json": ("input_json_delta", "partial_json", {"type": "tool_use", "id": "t", "name": "f", "input": {}}),
    }[kind]
    start, *_ = Splitter().feed(capture("messages_stream.sse.txt"))

    def one(name: str, **body) -> bytes:
        return event({"type": name, **body}, name)

    return [
        start.raw,
        one("content_block_start", index=0, content_block=block),
        *[one("content_block_delta", index=0, delta={"type": delta, field: piece}) for piece in pieces],
        one("content_block_stop", index=0),
        one("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
        one("message_stop"),
    ]


def responses(pieces) -> list[bytes]:
    """The captured stream with other deltas, and their text wherever it is repeated."""
    text = "".join(pieces)
    captured = [one.json() for one in Splitter().feed(capture("responses_stream.sse.txt"))]
    deltas = [body for body in captured if body["type"] == "response.output_text.delta"]
    first = captured.index(deltas[0])
    bodies = captured[:first] + [{**deltas[0], "delta": piece} for piece in pieces] + captured[first + len(deltas) :]
    old = orjson.dumps("".join(body["delta"] for body in deltas))
    out = []
    for number, body in enumerate(bodies):
        raw = orjson.dumps({**body, "sequence_number": number}).replace(old, orjson.dumps(text))
        out.append(event(raw, body["type"]))
    return out


STREAMS = {"chat": chat, "completions": completions, "messages": messages, "responses": responses}


def texts_of(events: list[bytes]) -> dict[object, str]:
    """The texts that a client puts together from a stream's deltas."""
    texts: dict[object, str] = defaultdict(str)
    splitter = Splitter()
    for one in splitter.feed(b"".join(events)):
        body = one.json()
        if not isinstance(body, dict):
            continue
        for choice in body.get("choices", ()):
            index, delta = choice["index"], choice.get("delta") or {}
            texts[index, "content"] += choice.get("text") or delta.get("content") or ""
            texts[index, "reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls") or ():
                texts[index, call["index"]] += call["function"].get("arguments") or ""
        delta = body.get("delta")
        if isinstance(delta, str):
            texts[body["type"], body.get("output_index")] += delta
        elif isinstance(delta, dict) and "type" in delta:
            texts[body["index"], delta["type"]] += next(v for k, v in delta.items() if k != "type")
    return {key: text for key, text in texts.items() if text}


def tokens_of(events: list[bytes]) -> list[object]:
    bodies = [one.json() for one in Splitter().feed(b"".join(events)) if one.data != b"[DONE]"]
    choices = [choice for body in bodies for choice in body.get("choices", ())]
    logprobs = [token for choice in choices for token in (choice.get("logprobs") or {}).get("content", ())]
    return logprobs + [token for choice in choices for token in choice.get("token_ids") or ()]


ARGUMENTS = [r'{"to": ["bob\u004', r'0x.org", "line\nann@', r'y.org"], "card": 41111111', "11111111, ", '"n": 1}']
SAFE = r'{"to": ["[email]", "line\n[email]"], "card": "[credit_card]", "n": 1}'
