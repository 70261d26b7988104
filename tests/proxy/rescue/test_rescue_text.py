"""Where the text of the tokens so far is asked for: stop strings across the cut, events of several tokens."""

from __future__ import annotations

from typing import Any

import pytest
from cases.scene import errors_of
from fakes import Connection, Request, chunked, json_answer, run, sending, sse_head
from lost import ASK, DONE, Engine, begins, finishes, losing, text_of, token, usages

STOP: dict[str, Any] = {**ASK, "stop": ["w4 w"], "stream_options": {"include_usage": True}}


def test_a_stop_string_that_began_before_the_cut() -> None:
    """Its engine holds back what may be the beginning of one: the client has not seen all of the tokens' text."""

    async def body() -> None:
        victim, other = Engine(), Engine()
        victim.on["/v1/chat/completions"] = begins(
            *[token(number, text=text) for number, text in enumerate(["", "w1 ", "w2 ", "w3 "], 1)]
        )
        async with losing(victim, other) as scene:
            answer = await scene.ask({**STOP, "max_tokens": 9})
            assert text_of(answer.body) == "w1 w2 w3 "
            assert finishes(answer.body) == ["stop"]
            assert b'"stop_reason":"w4 w"' in answer.body
            assert usages(answer.body)[-1]["completion_tokens"] == 5
            assert answer.body.endswith(DONE)
        assert other.paths() == ["/tokenize", "/detokenize", "/v1/completions"]
        assert other.bodies("/detokenize")[0]["tokens"] == [101, 102, 103, 104]
        assert "stop" not in other.bodies("/v1/completions")[0]

    run(body())


def test_the_worker_is_let_go_when_the_stop_string_is_there() -> None:
    async def body() -> None:
        victim, other = Engine("fin", 2), Engine()

        async def endless(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + chunked(token(3, chat=False)) + chunked(token(4, chat=False)))
            await conn.send(chunked(token(5, chat=False)))
            await conn.wait_closed()

        other.on["/v1/completions"] = endless
        async with losing(victim, other) as scene:
            answer = await scene.ask(STOP)
            assert text_of(answer.body) == "w1 w2 w3 "
            assert finishes(answer.body) == ["stop"]
            assert answer.complete

    run(body())


@pytest.mark.parametrize("text", ["other text", None, 5])
def test_tokens_with_another_text_are_not_gone_on_with(text: Any) -> None:
    async def body() -> None:
        other = Engine()
        other.on["/detokenize"] = sending(json_answer({"prompt": text}))
        async with losing(Engine("fin", 2), other) as scene:
            answer = await scene.ask(STOP)
            if text is None or text == 5:
                # That worker is no help; the first one was asked again.
                assert text_of(answer.body) == "w1 w2 w3 "
            else:
                assert len(errors_of(answer.body)) == 1
                assert text_of(answer.body) == "w1 w2 "
                assert not answer.complete

    run(body())


def test_a_space_that_a_tokenizer_takes_for_granted() -> None:
    async def body() -> None:
        victim, other = Engine(), Engine()
        victim.on["/v1/chat/completions"] = begins(token(1, text=" w1 "), token(2))
        async with losing(victim, other) as scene:
            answer = await scene.ask(STOP)
            assert text_of(answer.body) == " w1 w2 w3 "

    run(body())


@pytest.mark.parametrize("failing", [404, 500])
def test_a_worker_that_tells_no_text(failing: int) -> None:
    async def body() -> None:
        second = Engine()
        second.on["/detokenize"] = sending(json_answer({"detail": "no"}, failing))
        async with losing(Engine("fin", 2), second, Engine()) as scene:
            answer = await scene.ask(STOP)
            assert text_of(answer.body) == "w1 w2 w3 "

    run(body())
