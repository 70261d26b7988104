"""What the `redact` plugin makes of the streams of every API."""

from __future__ import annotations

import pytest
from fakes import capture, event, run
from hypothesis import given, settings
from hypothesis import strategies as st
from redact_streams import (
    ARGUMENTS,
    DONE,
    HIDDEN,
    PATHS,
    PATTERNS,
    SAFE,
    SECRET,
    STREAMS,
    TAPS,
    chat,
    chat_event,
    messages,
    responses,
    texts_of,
    through,
    tokens_of,
)
from tailrace.plugins.redact import Redact
from tailrace.proxy.sse import Splitter
from tailrace.proxy.testing import plugin_bench


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


def test_an_event_longer_than_the_relay_cuts_out():
    long = ("x" * 98 + ". ") * 10_500
    stream = responses([long, "bob@x.org"])
    out = through("responses", stream)
    assert b"bob" not in b"".join(out)
    assert list(texts_of(out).values()) == [long + "[email]"]
    assert through("responses", stream, len(b"".join(stream)) - 5) == out


def test_an_error_of_the_engine_is_passed_on_and_what_was_held_is_not():
    error = event({"error": {"message": "gone", "type": "x", "code": 500}})

    async def main():
        async with plugin_bench(Redact, answer=[*chat(["Hi. ", "bob@x"])[:3], error, DONE]) as bench:
            answer = await bench.post(PATHS["chat"], {"model": "m", "stream": True})
            assert not answer.complete
            assert error in answer.body
            assert b"bob" not in answer.body

    run(main())


PIECES = st.lists(
    st.sampled_from(["bob", "@", "x.org", " ", "4111", "1111", "11111111", "\n", '"', "é", "Hi.", "\\", "u0040", "{"]),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("dialect", STREAMS)
@settings(max_examples=60)
@given(pieces=PIECES)
def test_a_stream_says_what_the_whole_answer_says(dialect: str, pieces: list[str]):
    text = "".join(pieces)
    tap = TAPS[dialect](PATTERNS)
    assert "".join(texts_of(through(dialect, STREAMS[dialect](pieces))).values()) == tap.plain(text)
