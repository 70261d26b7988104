"""What counts as content, end and error in each API, judged on the captures of a real engine."""

from __future__ import annotations

import orjson
import pytest
from fakes import capture, chat_chunk, event
from tailrace.proxy.dialects import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Sign
from tailrace.proxy.sse import Event, Splitter

NOTHING, CONTENT, FINISH, DONE, ERROR, ABORTED = Sign
CAPTURED = {
    "stream": CHAT,
    "stream_usage": CHAT,
    "stream_n2": CHAT,
    "stream_logprobs": CHAT,
    "stream_token_ids": CHAT,
    "tool_named_stream": CHAT,
    "tool_required_stream": CHAT,
    "completion_stream": COMPLETIONS,
    "messages_stream": MESSAGES,
    "responses_stream": RESPONSES,
}


def events_of(name):
    return Splitter().feed(capture(f"{name}.sse.txt"))


def signs_of(name):
    return [CAPTURED[name].judge(found) for found in events_of(name)]


def judged(dialect, payload, name=""):
    return dialect.judge(Event(event(payload, name)))


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_streams(name):
    """Prelude, content, an end with a reason, the terminal event; and no errors."""
    signs = signs_of(name)
    first = signs.index(CONTENT)
    assert set(signs[:first]) <= {NOTHING}
    assert signs.count(DONE) == 1
    assert signs[-1] is DONE
    assert not {ERROR, ABORTED} & set(signs)
    if name != "responses_stream":
        assert signs.count(FINISH) == (2 if name == "stream_n2" else 1)
        assert FINISH in signs[first:-1]
    assert signs.count(CONTENT) >= 2


@pytest.mark.parametrize("name", CAPTURED)
def test_needles_are_in_every_event_that_matters(name):
    """The relay judges only events with a needle, so none may lack one; and most content must."""
    needles = CAPTURED[name].needles
    assert len(needles) == 4
    for found, sign in zip(events_of(name), signs_of(name), strict=True):
        marked = any(needle in found.raw for needle in needles)
        if sign in (FINISH, DONE, ERROR, ABORTED):
            assert marked, found.raw
        if sign is CONTENT:
            assert not marked, found.raw


def test_usage_is_no_content():
    usage = [found for found in events_of("stream_usage") if found.json() and not found.json().get("choices")]
    assert usage
    assert {CHAT.judge(found) for found in usage} == {NOTHING}


def test_engine_killed_mid_stream():
    raw = capture("sigkill_enginecore_midstream.http")
    payloads = [Event(line + b"\n\n") for line in raw.split(b"\n") if line.startswith(b"data: ")]
    signs = [CHAT.judge(found) for found in payloads]
    assert signs[-2:] == [ERROR, DONE]
    assert ERROR not in signs[:-2]


@pytest.mark.parametrize(
    ("payload", "sign"),
    [
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, NOTHING),
        ({"choices": [{"delta": {"role": "assistant", "content": None}}]}, NOTHING),
        ({"choices": [{"delta": {"content": "a"}}]}, CONTENT),
        ({"choices": [{"delta": {"reasoning": "a"}}]}, CONTENT),
        ({"choices": [{"delta": {"reasoning_content": "a"}}]}, CONTENT),
        ({"choices": [{"delta": {"refusal": "no"}}]}, CONTENT),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}, CONTENT),
        ({"choices": [{"delta": {}, "finish_reason": "stop"}]}, FINISH),
        ({"choices": [{"delta": {"content": "a"}, "finish_reason": "length"}]}, FINISH),
        ({"choices": [{"delta": {}, "finish_reason": "abort"}]}, ABORTED),
        ({"choices": [{"delta": {}, "finish_reason": "error"}]}, ABORTED),
        ({"choices": [{"delta": {}}, {"delta": {"content": "b"}}]}, CONTENT),
        ({"choices": [{"text": ""}]}, NOTHING),
        ({"choices": [{"text": "a"}]}, CONTENT),
        ({"choices": [], "usage": {}}, NOTHING),
        ({"choices": None}, NOTHING),
        ({"choices": [None, 3, "x"]}, NOTHING),
        ({"choices": [{"delta": None}]}, NOTHING),
        ({"error": {"message": "x"}}, ERROR),
        ({"error": "x"}, ERROR),
        ({"object": "error", "message": "x", "type": "BadRequestError", "code": 400}, ERROR),
        ({"error": None, "choices": [{"delta": {"content": "a"}}]}, CONTENT),
        ("[DONE]", DONE),
        ("[done]", NOTHING),
        ("", NOTHING),
        ("hello", NOTHING),
        ("[1, 2]", NOTHING),
        ("7", NOTHING),
    ],
)
def test_chat(payload, sign):
    assert judged(CHAT, payload) is sign


def test_comments_are_nothing():
    for dialect in (CHAT, MESSAGES, RESPONSES):
        assert dialect.judge(Event(b": keep-alive\n\n")) is NOTHING
        assert dialect.judge(Event(dialect.heartbeat)) is NOTHING


@pytest.mark.parametrize(
    ("payload", "sign"),
    [
        ({"type": "message_start", "message": {"content": []}}, NOTHING),
        ({"type": "ping"}, NOTHING),
        ({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, NOTHING),
        ({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}}, CONTENT),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, CONTENT),
        ({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "a"}}, CONTENT),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": ""}}, NOTHING),
        ({"type": "content_block_delta", "delta": None}, NOTHING),
        ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, FINISH),
        ({"type": "message_delta", "delta": {"stop_reason": None}}, ABORTED),
        ({"type": "message_delta", "delta": {"stop_reason": "abort"}}, ABORTED),
        ({"type": "message_stop"}, DONE),
        ({"type": "error", "error": {"message": "x"}}, ERROR),
        ({"object": "error", "message": "x", "type": "BadRequestError", "code": 400}, ERROR),
        ({"error": {"message": "x"}}, ERROR),
        ({"type": "content_block_delta", "delta": "a"}, NOTHING),
        ({"type": "content_block_start", "content_block": [1]}, NOTHING),
        ({"type": "message_delta", "delta": 7}, NOTHING),
        ({"type": 7}, NOTHING),
        ("[DONE]", NOTHING),
    ],
)
def test_messages(payload, sign):
    assert judged(MESSAGES, payload) is sign


@pytest.mark.parametrize(
    ("payload", "sign"),
    [
        ({"type": "response.created", "response": {}}, NOTHING),
        ({"type": "response.output_text.delta", "delta": "a"}, CONTENT),
        ({"type": "response.output_text.delta", "delta": ""}, NOTHING),
        ({"type": "response.reasoning_text.delta", "delta": "a"}, CONTENT),
        ({"type": "response.function_call_arguments.delta", "delta": "{"}, CONTENT),
        ({"type": "response.completed", "response": {}}, DONE),
        ({"type": "response.incomplete", "response": {}}, DONE),
        ({"type": "response.failed", "response": {"error": {"message": "x"}}}, ERROR),
        ({"type": "error", "message": "x"}, ERROR),
        ({"object": "error", "message": "x", "type": "BadRequestError", "code": 400}, ERROR),
        ({"error": {"message": "x"}}, ERROR),
        ("[DONE]", NOTHING),
        ("[1]", NOTHING),
    ],
)
def test_responses(payload, sign):
    assert judged(RESPONSES, payload) is sign


@pytest.mark.parametrize("text", ['"error"', '[DONE]"', '_reason":"stop', '"message_stop"', "\n\ndata: [DONE]\n\n"])
def test_text_of_a_model_cannot_fake_a_sign(text):
    assert CHAT.judge(Event(chat_chunk(text))) is CONTENT
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    assert judged(MESSAGES, delta) is CONTENT
    raw = orjson.dumps(delta)
    assert not any(needle in raw for needle in MESSAGES.needles)
