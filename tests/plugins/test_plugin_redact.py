"""What the `redact` plugin makes of the answers of every API, streamed and whole."""

from __future__ import annotations

from collections import defaultdict

import orjson
import pytest
from fakes import answer as answer_bytes
from fakes import capture, event, run
from hypothesis import given, settings
from hypothesis import strategies as st
from tailrace.plugins.redact import Config, Redact
from tailrace.plugins.redact_chat import Choices
from tailrace.plugins.redact_messages import Messages
from tailrace.plugins.redact_responses import Responses
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.sse import Splitter
from tailrace.proxy.testing import cut, plugin_bench

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


# Streams in the shapes that a real engine sends.


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


@pytest.mark.parametrize("dialect", STREAMS)
def test_wherever_a_text_is_cut_into_deltas(dialect: str):
    for pieces in [[SECRET], list(SECRET), *[[SECRET[:at], SECRET[at:]] for at in range(1, len(SECRET))]]:
        out = through(dialect, STREAMS[dialect](pieces))
        assert list(texts_of(out).values()) == [HIDDEN], pieces
        assert b"bob" not in b"".join(out)
        assert b"4111" not in b"".join(out)


@pytest.mark.parametrize("dialect", STREAMS)
def test_wherever_the_bytes_are_cut(dialect: str):
    stream = STREAMS[dialect]([SECRET[:15], SECRET[15:60], SECRET[60:]])
    out = through(dialect, stream)
    assert list(texts_of(out).values()) == [HIDDEN]
    for feed in ["joined", "split", "bytes", *range(1, len(b"".join(stream)), 3)]:
        assert through(dialect, stream, feed) == out, feed


@pytest.mark.parametrize("feed", ["whole", "joined", "split", "bytes"])
@pytest.mark.parametrize("dialect", STREAMS)
def test_in_a_gateway(dialect: str, feed: str):
    stream = STREAMS[dialect]([SECRET[:15], SECRET[15:60], SECRET[60:]])

    async def body():
        async with plugin_bench(Redact, answer=stream, feed=feed) as bench:
            answer = await bench.post(PATHS[dialect], {"model": "m", "stream": True})
            assert answer.complete
            assert [one.raw for one in answer.events] == through(dialect, stream)
            assert bench.calls[0][1].ending == "completed"

    run(body())


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("stream", "chat"),
        ("stream_n2", "chat"),
        ("stream_usage", "chat"),
        ("stream_logprobs", "chat"),
        ("stream_token_ids", "chat"),
        ("tool_required_stream", "chat"),
        ("tool_named_stream", "chat"),
        ("completion_stream", "completions"),
        ("messages_stream", "messages"),
        ("responses_stream", "responses"),
    ],
)
def test_a_real_stream_without_secrets_keeps_its_texts_events_and_tokens(name: str, dialect: str):
    stream = [one.raw for one in Splitter().feed(capture(f"{name}.sse.txt"))]
    out = through(dialect, stream)
    assert texts_of(out) == texts_of(stream)
    assert tokens_of(out) == tokens_of(stream)
    added = 1 if dialect in ("messages", "responses") else 0
    assert len(stream) <= len(out) <= len(stream) + added
    assert through(dialect, stream, "bytes") == out


def tokens_of(events: list[bytes]) -> list[object]:
    bodies = [one.json() for one in Splitter().feed(b"".join(events)) if one.data != b"[DONE]"]
    choices = [choice for body in bodies for choice in body.get("choices", ())]
    logprobs = [token for choice in choices for token in (choice.get("logprobs") or {}).get("content", ())]
    return logprobs + [token for choice in choices for token in choice.get("token_ids") or ()]


def test_text_goes_on_as_soon_as_it_is_decided():
    out = through("chat", chat(["Hello ", "wor", "ld!", " a@", "b", ".co", "m now"]))
    contents = [(one.json()["choices"][0]["delta"]).get("content") for one in Splitter().feed(b"".join(out[1:-2]))]
    assert contents == ["Hello ", "", "world!", " ", "", "", "[email] "]
    assert texts_of(out[:-1])[0, "content"] == "Hello world! [email] now"


def test_a_finish_reason_brings_what_was_held_back():
    out = through("chat", chat(["to bob@", "x.org"]))
    last = Splitter().feed(out[-2])[0].json()["choices"][0]
    assert (last["finish_reason"], last["delta"]) == ("stop", {"content": "[email]"})
    out = through("chat", chat(["to bob@"], finish_with="x.or"))
    last = Splitter().feed(out[-2])[0].json()["choices"][0]
    assert (last["finish_reason"], last["delta"]) == ("stop", {"content": "[email]"})


@pytest.mark.parametrize("dialect", STREAMS)
def test_a_stream_that_never_finishes_its_text(dialect: str):
    stream = STREAMS[dialect](["to bob@", "x.org"])
    keep = {"chat": 3, "completions": 2, "messages": 4, "responses": 6}[dialect]
    for end in ([], [DONE]):
        out = through(dialect, stream[:keep] + end)
        assert list(texts_of(out).values()) == ["to [email]"]
        assert (out[-1] == DONE) == bool(end)


def test_choices_do_not_mix():
    pieces = [(0, "bob@"), (1, "ann"), (0, "x."), (1, "@y.or"), (1, "g "), (0, "org ")]
    stream = [chat_event({"content": piece}, index) for index, piece in pieces]
    stream += [chat_event({}, 1, "stop"), chat_event({}, 0, "stop"), DONE]
    assert texts_of(through("chat", stream)) == {(0, "content"): "[email] ", (1, "content"): "[email] "}
    apart = [chat_event({"content": "bob@"}, 0), chat_event({"content": "x.org"}, 1), *stream[-3:]]
    assert texts_of(through("chat", apart)) == {(0, "content"): "bob@", (1, "content"): "x.org"}


def test_reasoning_and_content_do_not_mix():
    stream = [
        chat_event({"reasoning": "ask bob@"}),
        chat_event({"reasoning": "x.org"}),
        chat_event({"content": "Hi."}),
        chat_event({}, finish="stop"),
        DONE,
    ]
    texts = texts_of(through("chat", stream))
    assert texts == {(0, "reasoning"): "ask [email]", (0, "content"): "Hi."}


ARGUMENTS = [r'{"to": ["bob\u004', r'0x.org", "line\nann@', r'y.org"], "card": 41111111', "11111111, ", '"n": 1}']
SAFE = r'{"to": ["[email]", "line\n[email]"], "card": "[credit_card]", "n": 1}'


def test_arguments_of_parallel_tool_calls():
    def one(index: int, piece: str) -> bytes:
        return chat_event({"content": None, "tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    named = {"index": 0, "id": "a", "type": "function", "function": {"name": "f"}}
    stream = [chat_event({"role": "assistant", "tool_calls": [named, {**named, "index": 1, "id": "b"}]})]
    stream += [one(index, piece) for piece in ARGUMENTS for index in (0, 1)]
    stream += [chat_event({}, finish="tool_calls"), DONE]
    out = through("chat", stream)
    assert texts_of(out) == {(0, 0): SAFE, (0, 1): SAFE}
    assert out[0] == stream[0]
    letters = [one(0, letter) for letter in "".join(ARGUMENTS)]
    assert texts_of(through("chat", [stream[0], *letters, *stream[-2:]])) == {(0, 0): SAFE}


def test_arguments_that_end_with_the_stream():
    call = {"index": 2, "function": {"arguments": '{"to":"bob@x.org'}}
    out = through("chat", [chat_event({"tool_calls": [call]}), chat_event({}, finish="length"), DONE])
    assert texts_of(out) == {(0, 2): '{"to":"[email]'}
    last = Splitter().feed(out[1])[0].json()["choices"][0]["delta"]
    assert last == {"tool_calls": [{"index": 2, "function": {"arguments": "[email]"}}]}


def test_arguments_and_thinking_of_messages():
    assert texts_of(through("messages", messages(ARGUMENTS, "json"))) == {(0, "input_json_delta"): SAFE}
    out = through("messages", messages(["to bob@", "x.org"], "thinking"))
    assert texts_of(out) == {(0, "thinking_delta"): "to [email]"}
    names = [one.name for one in Splitter().feed(b"".join(out))]
    assert names[-4:] == [b"content_block_delta", b"content_block_stop", b"message_delta", b"message_stop"]


def test_the_last_events_of_responses_repeat_the_redacted_text():
    out = [one.json() for one in Splitter().feed(b"".join(through("responses", responses(["to bob@", "x.org"]))))]
    by_type = {body["type"]: body for body in out}
    assert by_type["response.output_text.done"]["text"] == "to [email]"
    assert by_type["response.content_part.done"]["part"]["text"] == "to [email]"
    assert by_type["response.output_item.done"]["item"]["content"][0]["text"] == "to [email]"
    assert by_type["response.completed"]["response"]["output"][0]["content"][0]["text"] == "to [email]"
    assert [body["sequence_number"] for body in out] == list(range(len(out)))
    kinds = [body["type"] for body in out]
    assert kinds[kinds.index("response.output_text.done") - 1] == "response.output_text.delta"


def test_function_calls_of_responses():
    place = {"item_id": "fc", "output_index": 1}
    text = "".join(ARGUMENTS)
    item = {"type": "function_call", "id": "fc", "name": "f", "call_id": "c", "arguments": text}
    bodies = [{"type": "response.function_call_arguments.delta", "delta": piece, **place} for piece in ARGUMENTS]
    bodies += [
        {"type": "response.function_call_arguments.done", "arguments": text, **place},
        {"type": "response.output_item.done", "item": item, "output_index": 1},
        {"type": "response.completed", "response": {"output": [item]}},
    ]
    stream = [event({**body, "sequence_number": n}, body["type"]) for n, body in enumerate(bodies)]
    out = through("responses", stream)
    assert texts_of(out) == {("response.function_call_arguments.delta", 1): SAFE}
    last = [one.json() for one in Splitter().feed(b"".join(out))][-3:]
    assert last[0]["arguments"] == last[1]["item"]["arguments"] == last[2]["response"]["output"][0]["arguments"] == SAFE


def with_tokens(pieces: list[str]) -> list[bytes]:
    stream = []
    for number, piece in enumerate(pieces):
        logprobs = {"content": [{"token": piece, "logprob": -0.5}], "refusal": None}
        stream.append(chat_event({"content": piece}, logprobs=logprobs, token_ids=[number]))
    return [*stream, chat_event({}, finish="stop"), DONE]


def test_tokens_wait_with_the_text_that_they_spell():
    pieces = ["One ", "two", " three", "."]
    out = through("chat", with_tokens(pieces))
    assert tokens_of(out) == [{"token": piece, "logprob": -0.5} for piece in pieces] + [0, 1, 2, 3]
    second = Splitter().feed(out[1])[0].json()["choices"][0]
    assert (second["delta"]["content"], second["logprobs"], second["token_ids"]) == ("", None, None)


def test_tokens_are_gone_from_the_first_replacement_on():
    pieces = ["One. ", "bob", "@x.org", " is", " it.", " So"]
    raw = b"".join(through("chat", with_tokens(pieces)))
    assert tokens_of([raw]) == [{"token": "One. ", "logprob": -0.5}, 0]
    assert b"bob" not in raw


def test_tokens_of_completions_and_responses():
    def one(text: str) -> bytes:
        lists = {"tokens": [text], "token_logprobs": [-0.5], "text_offset": [0]}
        return event({"choices": [{"index": 0, "text": text, "logprobs": lists, "finish_reason": None}]})

    out = through("completions", [one("no"), one(" more!")])
    assert Splitter().feed(out[0])[0].json()["choices"][0]["logprobs"] is None
    assert Splitter().feed(out[1])[0].json()["choices"][0]["logprobs"]["tokens"] == ["no", " more!"]
    raw = b"".join(through("completions", [one("bob@"), one("x.org "), one("x.")]))
    assert b"bob" not in raw

    logprobs = [{"token": "bob@x.org", "logprob": -1, "top_logprobs": []}]
    bodies = [
        {"type": "response.output_text.delta", "delta": "bob@x.org", "logprobs": logprobs, "sequence_number": 0},
        {"type": "response.output_text.done", "text": "bob@x.org", "logprobs": logprobs, "sequence_number": 1},
        {"type": "response.content_part.done", "part": {"text": "bob@x.org", "logprobs": logprobs}},
    ]
    raw = b"".join(through("responses", [event(body, body["type"]) for body in bodies]))
    assert b"bob" not in raw
    assert raw.count(b'"logprobs":[]') == 4


# Whole answers.


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


def test_an_event_longer_than_the_relay_cuts_out():
    long = "x. " * 500_000
    stream = responses([long, "bob@x.org"])
    out = through("responses", stream)
    assert b"bob" not in b"".join(out)
    assert list(texts_of(out).values()) == [long + "[email]"]
    assert through("responses", stream, len(b"".join(stream)) - 5) == out


def test_an_answer_in_a_coding_is_refused():
    raw = answer_bytes(200, b"\x1f\x8b", headers=b"content-encoding: gzip\r\n")
    answer = whole(PATHS["chat"], raw)
    assert (answer.status, answer.json()["error"]["code"]) == (502, "bad_upstream_answer")


def test_routes_without_text_are_left_alone():
    body = {"data": [{"embedding": [1.0]}], "note": SECRET}
    assert whole("/v1/embeddings", body).body == orjson.dumps(body)


def test_an_error_of_the_engine_is_passed_on_and_what_was_held_is_not():
    error = event({"error": {"message": "gone", "type": "x", "code": 500}})

    async def main():
        async with plugin_bench(Redact, answer=[*chat(["Hi. ", "bob@x"])[:3], error, DONE]) as bench:
            answer = await bench.post(PATHS["chat"], {"model": "m", "stream": True})
            assert not answer.complete
            assert error in answer.body
            assert b"bob" not in answer.body

    run(main())


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


PIECES = st.lists(
    st.sampled_from(["bob", "@", "x.org", " ", "4111", "1111", "11111111", "\n", '"', "é", "Hi.", "\\", "u0040", "{"]),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("dialect", STREAMS)
@settings(max_examples=60, deadline=None)
@given(pieces=PIECES)
def test_a_stream_says_what_the_whole_answer_says(dialect: str, pieces: list[str]):
    text = "".join(pieces)
    tap = TAPS[dialect](PATTERNS)
    assert "".join(texts_of(through(dialect, STREAMS[dialect](pieces))).values()) == tap.plain(text)
