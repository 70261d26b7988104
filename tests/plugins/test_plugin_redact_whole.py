"""What the `redact` plugin makes of whole answers, and of what no engine sends."""

from __future__ import annotations

import orjson
import pytest
from fakes import answer as answer_bytes
from fakes import capture, event, run
from redact_streams import (
    ARGUMENTS,
    HIDDEN,
    PATHS,
    PATTERNS,
    SAFE,
    SECRET,
    TAPS,
    through,
)
from tailrace.plugins.redact import Redact
from tailrace.proxy.testing import plugin_bench


def whole(path: str, body: dict | bytes, limits: dict | None = None):
    async def main():
        async with plugin_bench(Redact, answer=body, settings={"limits": limits or {}}) as bench:
            return await bench.post(path, {"model": "m"})

    return run(main())


def edited(name: str, change) -> dict:
    body = orjson.loads(capture(name))
    change(body)
    return body


def test_whole_answers_of_every_api():
    def chat_secret(body):
        message = body["choices"][0]["message"]
        message.update(content=SECRET, reasoning=SECRET)
        call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "".join(ARGUMENTS)}}
        message["tool_calls"] = [call]

    choice = whole(PATHS["chat"], edited("unary_logprobs.json", chat_secret)).json()["choices"][0]
    assert (choice["message"]["content"], choice["message"]["reasoning"]) == (HIDDEN, HIDDEN)
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == SAFE
    assert (choice["logprobs"], choice["token_ids"]) == (None, None)

    answer = whole(PATHS["completions"], edited("completion.json", lambda body: body["choices"][0].update(text=SECRET)))
    assert answer.json()["choices"][0]["text"] == HIDDEN

    def blocks(body):
        tool = {"type": "tool_use", "id": "t", "name": "f", "input": orjson.loads("".join(ARGUMENTS))}
        body["content"] = [{"type": "thinking", "thinking": SECRET}, {"type": "text", "text": SECRET}, tool]

    thinking, text, tool = whole(PATHS["messages"], edited("messages.json", blocks)).json()["content"]
    assert (thinking["thinking"], text["text"]) == (HIDDEN, HIDDEN)
    assert tool["input"] == orjson.loads(SAFE)

    def item(body):
        body["output"][0]["content"][0]["text"] = SECRET
        body["output"].append({"type": "reasoning", "summary": [{"type": "summary_text", "text": SECRET}]})

    output = whole(PATHS["responses"], edited("responses.json", item)).json()["output"]
    assert (output[0]["content"][0]["text"], output[1]["summary"][0]["text"]) == (HIDDEN, HIDDEN)


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("unary.json", "chat"),
        ("unary_logprobs.json", "chat"),
        ("unary_token_ids.json", "chat"),
        ("tool_named.json", "chat"),
        ("completion.json", "completions"),
        ("messages.json", "messages"),
        ("responses.json", "responses"),
    ],
)
def test_a_whole_answer_without_secrets_keeps_every_byte(name: str, dialect: str):
    data = capture(name)
    assert TAPS[dialect](PATTERNS).body(data) == data


def test_an_answer_too_long_to_be_held_before_its_head():
    long = "x. " * 600_000
    body = edited("unary.json", lambda body: body["choices"][0]["message"].update(content=long + SECRET))
    answer = whole(PATHS["chat"], body, {"body": 1 << 20})
    assert answer.header("transfer-encoding") == "chunked"
    assert answer.json()["choices"][0]["message"]["content"] == long + HIDDEN


def test_an_answer_in_a_coding_is_refused():
    raw = answer_bytes(200, b"\x1f\x8b", headers=b"content-encoding: gzip\r\n")
    answer = whole(PATHS["chat"], raw)
    assert (answer.status, answer.json()["error"]["code"]) == (502, "bad_upstream_answer")


def test_routes_without_text_are_left_alone():
    body = {"data": [{"embedding": [1.0]}], "note": SECRET}
    assert whole("/v1/embeddings", body).body == orjson.dumps(body)


@pytest.mark.parametrize("dialect", TAPS)
def test_what_no_engine_sends_breaks_nothing(dialect: str):
    odd = [
        {"choices": 1},
        {"choices": [1, {"index": {}, "delta": []}, {"index": [1], "delta": {"content": 5, "tool_calls": [1, {}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": {}, "function": {"arguments": 7}}]}, "finish_reason": "x"}]},
        {"choices": [{"delta": None, "finish_reason": {}}, {"text": None, "logprobs": 3}]},
        {"type": {}, "delta": {"type": []}, "index": {}, "item": {"content": 3}, "part": []},
        {"type": "content_block_delta", "delta": {"type": [], "text": 1}, "index": {}},
        {"type": "content_block_start", "content_block": {"input": [], "text": {}}, "index": []},
        {"type": "content_block_stop", "index": {}},
        {"type": "response.output_text.delta", "delta": {}, "output_index": {}, "sequence_number": "x"},
        {"type": "response.output_text.done", "text": None},
        {"type": "response.completed", "response": {"output": [1, {"content": [1]}]}},
        [],
        3,
    ]
    stream = [event(body) for body in odd] + [b": comment\n\n", event("not json"), b"\n\n", b"data:\n\n"]
    assert through(dialect, stream) == stream
    assert through(dialect, [event("not json bob@x.org")]) == [event("not json [email]")]
    assert TAPS[dialect](PATTERNS).body(b"\xff bob@x.org") == b"\xff [email]"
    for body in odd:
        assert TAPS[dialect](PATTERNS).body(orjson.dumps(body)) == orjson.dumps(body)
