"""SSE: `[DONE]` from an engine that has not finished, on each API, and where it ends what needs no reason."""

from __future__ import annotations

import pytest
from fakes import chat_chunk, event, run, sse_answer
from tailrace.proxy.outcome import Ending

from cases.scene import DONE, FINISH, ROLE, STREAM, scene
from cases.scripts import PLUGINS, each

_TEXT = {"index": 0, "text": "half", "finish_reason": None}
_DELTA = {"type": "text_delta", "text": "half"}
BEGUN = {
    "/v1/chat/completions": [ROLE, chat_chunk("half")],
    "/v1/completions": [event({"id": "c", "choices": [_TEXT]})],
    "/v1/messages": [
        event({"type": "message_start", "message": {}}, "message_start"),
        event({"type": "content_block_delta", "index": 0, "delta": _DELTA}, "content_block_delta"),
    ],
    "/v1/responses": [
        event({"type": "response.created", "response": {"id": "resp_1"}}, "response.created"),
        event({"type": "response.output_text.delta", "delta": "half"}, "response.output_text.delta"),
    ],
}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("path", BEGUN)
def test_SSE_13_done_of_an_engine_that_has_not_finished(path, plugin, at_once):
    """Nobody goes on: the client is told, and does not see the word at which its SDK would stop reading."""
    begun = BEGUN[path]
    script = sse_answer([b"".join([*begun, DONE])]) if at_once else each([*begun, DONE])

    async def body():
        async with scene(script, plugins=f"[cases.witness:{plugin}]") as s:
            answer = await s.ask({**STREAM, "prompt": "x", "input": "x", "max_tokens": 9}, path)
            assert (answer.status, answer.complete) == (200, False)
            assert answer.body.startswith(b"".join(begun))
            assert b"[DONE]" not in answer.body
            assert "without a finish reason" in answer.events[-1].json()["error"]["message"]
            assert len(answer.events) == len(begun) + 1
            outcome = await s.outcome()
            assert (outcome.ending, outcome.fault.kind) == (Ending.UPSTREAM_LOST, "false_end")

    run(body())


def test_SSE_13_done_behind_an_event_that_came_in_two():
    """What was shown of the event before is shown to its end, and the error stands on a line of its own."""
    text = chat_chunk("half")

    async def body():
        async with scene(each([ROLE, chat_chunk("a"), text[:30], text[30:] + DONE])) as s:
            answer = await s.ask()
            assert answer.body.startswith(b"".join([ROLE, chat_chunk("a"), text]) + b"data: {")
            assert (len(answer.events), answer.complete) == (4, False)

    run(body())


def test_SSE_13_done_with_fewer_choices_than_were_asked_for():
    pieces = [ROLE, chat_chunk("a"), FINISH, DONE]

    async def body():
        async with scene(sse_answer(pieces)) as s:
            answer = await s.ask({**STREAM, "n": 2})
            assert (answer.body, answer.complete) == (b"".join(pieces), True)

    run(body())


def test_SSE_13_done_behind_the_last_event_of_a_message():
    """Superfluous, but no harm: the answer is whole."""
    stop = event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}, "message_delta")
    pieces = [*BEGUN["/v1/messages"], stop, DONE]

    async def body():
        async with scene(sse_answer(pieces)) as s:
            answer = await s.ask({**STREAM, "max_tokens": 9}, "/v1/messages")
            assert (answer.body, answer.complete) == (b"".join(pieces), True)

    run(body())


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--b\r\nContent-Disposition: form-data; name="stream"\r\n\r\ntrue\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nsound\r\n--b--\r\n'
)


@pytest.mark.parametrize("what", ["transcriptions", "translations"])
@pytest.mark.parametrize("begun", [[], [chat_chunk("spoken")]])
def test_SSE_13_what_was_heard_needs_no_reason(what, begun):
    pieces = [*begun, DONE]

    async def body():
        async with scene(sse_answer(pieces)) as s:
            client = await s.client()
            kind = {"content-type": "multipart/form-data; boundary=b"}
            answer = await client.post(f"/v1/audio/{what}", FORM, kind)
            assert (answer.status, answer.body, answer.complete) == (200, b"".join(pieces), True)

    run(body())
