"""What the `redact` plugin makes of whole answers, and of what no engine sends."""

from __future__ import annotations

import orjson
import pytest
from fakes import Connection, RawClient, Request, capture, event, run, until
from fakes import answer as answer_bytes
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
from tailrace.plugins.redact_stream import LONGEST_EVENT, Whole
from tailrace.proxy.fault import Failed
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.sse import Event
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


def test_a_long_answer():
    long = "x. " * 600_000
    body = edited("unary.json", lambda body: body["choices"][0]["message"].update(content=long + SECRET))
    answer = whole(PATHS["chat"], body)
    assert answer.json()["choices"][0]["message"]["content"] == long + HIDDEN
    refused = whole(PATHS["chat"], body, {"body": 1 << 20})
    assert (refused.status, refused.json()["error"]["code"]) == (502, "bad_upstream_answer")
    assert "limits.body" in refused.json()["error"]["message"]


def test_an_answer_in_pieces_is_collected_up_to_the_limit():
    body = orjson.dumps(edited("unary.json", lambda body: body["choices"][0]["message"].update(content=SECRET)))
    tap = Whole(TAPS["chat"](PATTERNS), len(body))
    for at in range(0, len(body), 7):
        assert tap.feed(Event(body[at : at + 7])) == ()
    (rest,) = tap.finish(Outcome(Ending.COMPLETED, 200))
    assert orjson.loads(rest.raw)["choices"][0]["message"]["content"] == HIDDEN
    tap = Whole(TAPS["chat"](PATTERNS), len(body) - 1)
    tap.feed(Event(body[:-1]))
    with pytest.raises(Failed, match=r"limits\.body"):
        tap.feed(Event(body[-1:]))


def ended(kind: bytes, begin: bytes, settings: dict) -> tuple[bytes, Outcome, int]:
    """What a client gets of an answer that never ends, how the call ended, and how much of it was taken in."""
    sent = []

    async def endless(conn: Connection, request: Request) -> None:
        await conn.send(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: 9999999999\r\n\r\n%b" % (kind, begin))
        while True:
            sent.append(await conn.send(b"A" * 65536))

    async def main():
        async with plugin_bench(Redact, answer=endless, settings=settings) as bench, RawClient(bench.url) as client:
            asked = orjson.dumps({"model": "m", "stream": b"event" in kind})
            await client.request("POST", PATHS["chat"], asked, {"connection": "close"})
            got = await client.read_until_close()
            await until(lambda: bench.calls)
            return got, bench.calls[0][1], len(sent) * 65536

    return run(main())


@pytest.mark.parametrize(("limit", "most"), [(1 << 20, 16 << 20), (5 << 20, 20 << 20)])
def test_an_answer_that_never_ends_is_not_kept_beyond_the_limit(limit: int, most: int):
    begin = b'{"choices":[{"index":0,"message":{"content":"'
    got, outcome, taken = ended(b"application/json", begin, {"limits": {"body": limit}})
    assert got.startswith(b"HTTP/1.1 502 ")
    assert b"limits.body" in got
    assert outcome.status == 502
    assert limit <= taken < most


def test_an_event_that_never_ends_is_not_kept_beyond_the_limit():
    begin = event({"choices": [{"index": 0, "delta": {"content": "hi "}}]}) + b'data: {"choices":[{"delta":{"content":"'
    got, outcome, taken = ended(b"text/event-stream", begin, {})
    assert b'"hi "' in got
    assert b"AAAA" not in got
    assert outcome.ending is Ending.UPSTREAM_LOST
    assert taken < LONGEST_EVENT + (16 << 20)


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
