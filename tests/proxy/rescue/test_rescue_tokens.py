"""Events of several tokens, tokens without a text of their own, and ids that a client has: where a stream goes on."""

from __future__ import annotations

from typing import Any

import pytest
from cases.scene import errors_of
from fakes import Connection, Request, chunked, json_answer, run, sending, sse_answer, sse_head
from lost import ASK, DONE, PROMPT, Engine, begins, losing, text_of, token, usage, usages

TEXTS = {101: "a", 102: "水", 103: "\ufffd", 104: "\ufffd", 105: "b"}
"""Of the last two only half a character is there each."""


async def _detokenize(conn: Connection, request: Request) -> None:
    ids = request.json()["tokens"]
    await conn.send(json_answer({"prompt": "".join([TEXTS[number] for number in ids]).replace("\ufffd\ufffd", "é")}))


# An event with several ids: behind the last of them a character may stand open.

COARSE: list[tuple[list[tuple[str, list[int]]], list[int]]] = [
    ([("a水", [101, 102])], [101, 102]),
    ([("a水", [101, 102, 103])], [101, 102]),
    ([("a", [101]), ("水", [102, 103])], [101, 102]),
    ([("a", [101]), ("水", [102]), ("", [103])], [101, 102]),
    ([("a水é", [101, 102, 103, 104])], [101, 102, 103, 104]),
]


@pytest.mark.parametrize(("events", "clean"), COARSE)
def test_it_goes_on_behind_the_last_whole_character(events: list[tuple[str, list[int]]], clean: list[int]) -> None:
    async def body() -> None:
        victim, other = Engine(), Engine()
        victim.on["/v1/chat/completions"] = begins(*[token(0, text=text, ids=ids) for text, ids in events])
        other.on["/detokenize"] = _detokenize
        rest = token(9, chat=False, text="!", ids=[109], finish=True)
        other.on["/v1/completions"] = sending(sse_answer([rest, usage(1, chat=False), DONE]))
        async with losing(victim, other) as scene:
            answer = await scene.ask({**ASK, "stream_options": {"include_usage": True}})
            assert text_of(answer.body) == "".join([text for text, _ in events]) + "!"
            assert usages(answer.body)[-1]["completion_tokens"] == len(clean) + 1
        assert other.bodies("/v1/completions")[0]["prompt"] == PROMPT + clean
        assert ("/detokenize" in other.paths()) is any(len(ids) > 1 for _, ids in events[-1:])

    run(body())


def test_tokens_that_never_make_a_character() -> None:
    async def body() -> None:
        victim, other = Engine(), Engine()
        victim.on["/v1/chat/completions"] = begins(token(0, text="a", ids=[101, 103, 103, 103, 103, 103]))
        other.on["/detokenize"] = sending(json_answer({"prompt": "a\ufffd"}))
        async with losing(victim, other) as scene:
            answer = await scene.ask(ASK)
            assert len(errors_of(answer.body)) == 1
            assert not answer.complete

    run(body())


def test_ids_that_a_client_has_seen_are_not_drawn_again() -> None:
    """With a temperature they would be others."""

    async def body() -> None:
        for temperature, goes_on in ((0, True), (0.7, False)):
            victim, other = Engine(), Engine()
            victim.on["/v1/chat/completions"] = begins(token(1), token(2), token(3, text=""))
            other.on["/v1/completions"] = sending(
                sse_answer(
                    [
                        token(3, chat=False, text=""),
                        token(4, chat=False, text="x "),
                        token(5, chat=False, finish=True),
                        DONE,
                    ]
                )
            )
            async with losing(victim, other) as scene:
                answer = await scene.ask({**ASK, "temperature": temperature, "return_token_ids": True})
                assert text_of(answer.body) == ("w1 w2 x w5 " if goes_on else "w1 w2 ")
                assert answer.body.count(b"[103]") == 1
                assert answer.body.count(b'"prompt_token_ids":[1,2,3]') == 1
                assert bool(errors_of(answer.body)) is not goes_on

    run(body())


def test_a_clients_own_ids_that_differ_end_the_stream() -> None:
    async def body() -> None:
        victim, other = Engine(), Engine()
        victim.on["/v1/chat/completions"] = begins(token(1), token(2), token(3, text=""))
        other.on["/v1/completions"] = sending(sse_answer([token(4, chat=False), DONE]))
        async with losing(victim, other) as scene:
            answer = await scene.ask({**ASK, "temperature": 0, "return_token_ids": True})
            assert text_of(answer.body) == "w1 w2 "
            assert len(errors_of(answer.body)) == 1

    run(body())


def test_a_prompt_of_tokens_is_asked_nobody_for() -> None:
    async def body() -> None:
        victim, other = Engine(), Engine()

        async def lost(conn: Connection, request: Request) -> None:
            first = token(1, chat=False).replace(b'"token_ids":[101]', b'"token_ids":[101],"prompt_token_ids":[1,2,3]')
            await conn.send(sse_head() + chunked(first) + chunked(token(2, chat=False)))
            conn.close()

        victim.on["/v1/completions"] = lost
        async with losing(victim, other) as scene:
            asked = {"model": "m", "prompt": PROMPT, "max_tokens": 6, "stream": True}
            answer = await scene.ask(asked, "/v1/completions")
            assert answer.body.endswith(DONE)
            assert answer.body.count(b'"cmpl-9"') == 6
            assert b'"prompt_token_ids":[' not in answer.body
        assert other.paths() == ["/v1/completions"]

    run(body())


def test_drawn_ids_behind_half_a_character_are_not_drawn_again_either() -> None:
    async def body() -> None:
        for temperature, goes_on in ((0, True), (0.7, False)):
            victim, other = Engine(), Engine()
            victim.on["/v1/chat/completions"] = begins(token(0, text="a水", ids=[101, 102, 103]))
            other.on["/detokenize"] = _detokenize
            rest = [
                token(0, chat=False, text="", ids=[103]),
                token(0, chat=False, text="é", ids=[104]),
                token(0, chat=False, text="!", ids=[105], finish=True),
            ]
            other.on["/v1/completions"] = sending(sse_answer([*rest, DONE]))
            async with losing(victim, other) as scene:
                answer = await scene.ask({**ASK, "temperature": temperature, "return_token_ids": True})
                assert text_of(answer.body) == ("a水é!" if goes_on else "a水")
                assert bool(errors_of(answer.body)) is not goes_on

    run(body())


def test_an_answer_that_may_not_be_longer_has_nothing_to_go_on_with() -> None:
    """Its engine said all of it but why it ended."""

    async def body() -> None:
        victim, other = Engine(), Engine()
        victim.on["/v1/chat/completions"] = begins(token(1), token(2))
        async with losing(victim, other) as scene:
            answer = await scene.ask({**ASK, "max_tokens": 2})
            assert len(errors_of(answer.body)) == 1
            assert other.paths() == ["/tokenize"]

    run(body())


# Tokens without a text of their own.


def test_what_was_made_and_not_shown_is_forgotten() -> None:
    """It is made anew, and counts once: the third engine goes on from what the second one made of it."""

    async def body() -> None:
        victim, second, third = Engine(), Engine(), Engine()
        victim.on["/v1/chat/completions"] = begins(token(1), token(2), token(8, text=""), token(9, text=""))

        async def lost(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + chunked(token(3, chat=False)) + chunked(token(4, chat=False)))
            conn.close()

        second.on["/v1/completions"] = lost
        async with losing(victim, second, third) as scene:
            answer = await scene.ask({**ASK, "stream_options": {"include_usage": True}})
            assert text_of(answer.body) == "w1 w2 w3 w4 w5 w6 "
            assert usages(answer.body)[-1]["completion_tokens"] == 6
        assert third.bodies("/v1/completions")[0]["prompt"] == [*PROMPT, 101, 102, 103, 104]

    run(body())


@pytest.mark.parametrize("asked", [{}, {"return_token_ids": True}])
def test_a_continuation_that_begins_without_text(asked: dict[str, Any]) -> None:
    """Its first token is half a character: nothing of it is lost, though the stream goes on with the second only."""

    async def body() -> None:
        other = Engine()
        events = [
            token(3, chat=False, text=""),
            token(4, chat=False, text="水"),
            token(5, chat=False, finish=True),
            usage(3, chat=False),
            DONE,
        ]
        other.on["/v1/completions"] = sending(sse_answer(events))
        async with losing(Engine("fin"), other) as scene:
            answer = await scene.ask({**ASK, **asked, "temperature": 0, "stream_options": {"include_usage": True}})
            assert text_of(answer.body) == "w1 w2 水w5 "
            assert answer.body.count(b"[103]") == answer.body.count(b"[104]") == bool(asked)
            assert usages(answer.body)[-1]["completion_tokens"] == 5

    run(body())


def test_a_continuation_of_nothing_but_tokens_without_text() -> None:
    """What is held back of it has an end."""

    async def body() -> None:
        other = Engine()
        many = [token(number, chat=False, text="") for number in range(3, 1003)]
        other.on["/v1/completions"] = sending(sse_answer([*many, token(1003, chat=False, finish=True), DONE]))
        async with losing(Engine("fin"), other) as scene:
            answer = await scene.ask({**ASK, "max_tokens": 1003, "stream_options": {"include_usage": True}})
            assert text_of(answer.body) == "w1 w2 w1003 "
            assert usages(answer.body)[-1]["completion_tokens"] == 1003
            assert len(answer.events) > 1000

    run(body())
