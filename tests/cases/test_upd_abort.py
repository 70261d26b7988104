"""Requests that an engine gave up, in each API's spelling: bodies that a real vLLM sent when it was told to end."""

from __future__ import annotations

import pytest
from fakes import CHAT, answer, chat_answer, chat_chunk, event, json_answer, run, sse_answer
from tailrace.proxy.outcome import Ending

from cases.scene import scene

MESSAGES = "/v1/messages"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}
USAGE = {"input_tokens": 23, "output_tokens": 24}
GIVEN_UP = {
    "id": "chatcmpl-1",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "half an ans"}],
    "model": "m",
    "usage": USAGE,
}


def named(body: dict) -> bytes:
    return event(body, body["type"])


BEGUN = [
    named({"type": "message_start", "message": {**GIVEN_UP, "content": [], "stop_reason": None}}),
    named({"type": "content_block_start", "content_block": {"type": "text", "text": ""}, "index": 0}),
    named({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "half"}, "index": 0}),
    named({"type": "content_block_stop", "index": 0}),
]
END = [
    named({"type": "message_delta", "delta": {"stop_reason": None, "stop_sequence": None}, "usage": USAGE}),
    named({"type": "message_stop"}),
]


@pytest.mark.parametrize("aborted", [GIVEN_UP, {**GIVEN_UP, "stop_reason": None}], ids=["left out", "null"])
def test_UPD_02_a_message_without_a_stop_reason(aborted):
    async def body():
        async with scene(json_answer(aborted), json_answer({**GIVEN_UP, "stop_reason": "end_turn"})) as s:
            answer = await s.ask(ASK, MESSAGES)
            assert answer.status == 502
            assert answer.json()["type"] == "error"
            assert (await s.outcome()).ending is Ending.FAILED
            assert (await s.ask(ASK, MESSAGES)).status == 200

    run(body())


@pytest.mark.parametrize("begun", [BEGUN, BEGUN[:2]])
def test_UPD_02_a_stream_of_messages_without_a_stop_reason(begun):
    async def body():
        async with scene(sse_answer([*begun, *END])) as s:
            answer = await s.ask({**ASK, "stream": True}, MESSAGES)
            if len(begun) == 2:
                assert answer.status == 502
                return
            assert not answer.complete
            assert answer.body.startswith(b"".join(begun))
            assert b"message_stop" not in answer.body
            assert answer.events[-1].json()["type"] == "error"
            assert (await s.outcome()).ending is Ending.UPSTREAM_LOST

    run(body())


SPELLED = [
    b'"finish_reason":"abort"',
    b'"finish_reason": "abort"',
    b'"finish_reason":"error"',
    b'"finish_reason": "error"',
    b'"finish_reason" :\n "abort"',
]


def chosen(reason: bytes, text: bytes = b"", others: int = 0) -> bytes:
    good = b'{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"},' * others
    last = b'{"index":1,"message":{"role":"assistant","content":"%b"},%b}' % (text, reason)
    return answer(200, b'{"id":"x","choices":[%b%b]}' % (good, last))


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("reason", SPELLED)
def test_UPD_02_an_answer_that_was_given_up_is_none(reason, others):
    """However it is spelled, and whichever choice says so: the same reasons end a stream with an error."""

    async def body():
        async with scene(chosen(reason, others=others), json_answer(chat_answer("hi"))) as s:
            got = await s.ask(CHAT)
            assert (got.status, got.json()["error"]["code"]) == (502, "bad_upstream_answer")
            assert (await s.outcome()).ending is Ending.FAILED
            assert (await s.ask(CHAT)).status == 200

    run(body())


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_UPD_02_a_stream_that_was_given_up_says_so(reason):
    async def body():
        async with scene(sse_answer([chat_chunk("a"), chat_chunk(finish=reason), event("[DONE]")])) as s:
            answer = await s.ask({**CHAT, "stream": True})
            assert not answer.complete
            assert b"upstream_incomplete" in answer.body

    run(body())


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (b'"finish_reason":"stop","stop_reason":"abort"', b""),
        (b'"finish_reason":"stop"', rb"{\"finish_reason\":\"abort\"}"),
        (b'"finish_reason":null', rb"\"finish_reason\": \"error\""),
        (b'"finish_reason":"aborted"', b""),
    ],
)
def test_UPD_02_what_a_model_writes_gives_nothing_up(reason, text):
    async def body():
        async with scene(chosen(reason, text)) as s:
            assert (await s.ask(CHAT)).status == 200

    run(body())
