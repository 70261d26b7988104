"""What a rescued stream has beside it: other plugins, renamed models, codings, clients and engines of all kinds."""

from __future__ import annotations

import gzip
from typing import Any

import orjson
import pytest
from cases.scene import END, errors_of
from fakes import (
    PATH,
    Connection,
    Request,
    chunked,
    json_answer,
    run,
    sending,
    sse_answer,
    sse_head,
)
from lost import ASK, DONE, PLUGINS, PROMPT, Engine, is_whole, losing, role, text_of, token
from tailrace.proxy.outcome import AttemptEnd

REDACT = PLUGINS.replace("rescue,", "rescue, {redact: {patterns: [email]}},")


def streams(*pieces: bytes, whole: bool = True) -> Any:
    async def script(conn: Connection, request: Request) -> None:
        await conn.send(sse_head() + b"".join([chunked(piece) for piece in pieces]) + (END if whole else b""))
        if not whole:
            conn.close()

    return script


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_what_a_plugin_holds_back_is_neither_lost_nor_said_twice(cut: int) -> None:
    """The beginning of an address stands before the cut, its end behind it."""
    texts = ["Write to ", "bob", ".smith@", "mail.example", ".com", " now"]

    async def body() -> None:
        victim, other = Engine(), Engine()
        first = [token(number, text=text) for number, text in enumerate(texts[:cut], 1)]
        rest = [token(number, chat=False, text=text) for number, text in enumerate(texts[cut:], 1 + cut)]
        victim.on[PATH] = streams(role(), *first, whole=False)
        other.on["/v1/completions"] = streams(*rest, token(7, chat=False, text="!", finish=True), DONE)
        async with losing(victim, other, plugins=REDACT) as scene:
            answer = await scene.ask({**ASK, "max_tokens": 9})
            assert text_of(answer.body) == "Write to [email] now!"
            assert answer.body.endswith(DONE)

    run(body())


def test_what_a_plugin_holds_back_goes_where_nobody_goes_on() -> None:
    async def body() -> None:
        victim, other = Engine(), Engine()
        victim.on[PATH] = streams(role(), token(1, text="Write to bob.smith@"), whole=False)
        for engine in (victim, other):
            engine.on["/tokenize"] = sending(json_answer({}, 500))
        async with losing(victim, other, plugins=REDACT) as scene:
            answer = await scene.ask(ASK)
            assert b"bob" not in answer.body
            assert len(errors_of(answer.body)) == 1

    run(body())


def test_a_compressed_stream_goes_on() -> None:
    async def body() -> None:
        async with losing(Engine("fin"), Engine(), more="compression: {streams: true}") as scene:
            answer = await scene.ask(ASK, headers={"accept-encoding": "gzip"})
            assert answer.header("content-encoding") == "gzip"
            assert is_whole(gzip.decompress(answer.body))

    run(body())


def test_a_client_without_chunks() -> None:
    async def body() -> None:
        async with losing(Engine("fin"), Engine()) as scene:
            client = await scene.client()
            await client.request("POST", PATH, orjson.dumps(ASK), version="1.0")
            head, _, rest = (await client.read_until_close()).partition(b"\r\n\r\n")
            assert b"transfer-encoding" not in head.lower()
            assert is_whole(rest)

    run(body())


@pytest.mark.parametrize("temperature", [None, 0.7])
def test_drawn_tokens_go_on_from_those_that_were_shown(temperature: float | None) -> None:
    """A fair continuation: the same distribution, behind exactly the tokens whose text the client has."""

    async def body() -> None:
        victim, other = Engine(), Engine()
        victim.on[PATH] = streams(role(), token(1), token(2), token(3, text=""), whole=False)
        async with losing(victim, other) as scene:
            answer = await scene.ask({**ASK, "temperature": temperature, "top_p": 0.9})
            assert is_whole(answer.body)
        (asked,) = other.bodies("/v1/completions")
        assert asked["prompt"] == [*PROMPT, 101, 102]
        assert (asked["temperature"], asked["top_p"], "seed" in asked) == (temperature, 0.9, False)

    run(body())


# Engines.


def test_an_engine_that_refuses_the_question_for_ids() -> None:
    """Its calls go on without, and cannot be rescued."""
    refusal = {"error": {"message": "Unknown field: return_token_ids", "type": "BadRequestError", "code": 400}}

    async def strict(conn: Connection, request: Request) -> None:
        if request.method == "POST" and "return_token_ids" in request.json():
            await conn.send(json_answer(refusal, 400))
        else:
            bare = [each.replace(b',"token_ids":[10%d]' % number, b"") for number, each in enumerate(EVENTS)]
            await conn.send(sse_answer([*bare, DONE]))

    async def body() -> None:
        async with losing(strict, strict) as scene:  # type: ignore[arg-type]
            for _ in range(2):
                assert is_whole((await scene.ask(ASK)).body)
            asked = ["return_token_ids" in request.json() for request in scene.upstream.requests]
            assert asked == [True, False, False]

    run(body())


def invalid(value: Any) -> bytes:
    """What vLLM says of a value that it cannot read: in its words, and the client's."""
    message = f"1 validation error:\n  {{'type': 'int_parsing', 'loc': 'body.max_tokens', 'input': '{value}'}}"
    return json_answer(
        {"error": {"message": message, "type": "Bad Request", "param": "body.max_tokens", "code": 400}}, 400
    )


@pytest.mark.parametrize("echoed", ["return_token_ids", "stream_options", "seven"])
def test_a_refusal_that_repeats_the_clients_own_words_is_no_strict_engine(echoed: str) -> None:
    """Whoever may ask could switch off all rescues at a worker."""

    async def body() -> None:
        victim = Engine("fin")

        async def reads(conn: Connection, request: Request) -> None:
            asked = request.json()
            if isinstance(asked["max_tokens"], int):
                await victim._generate(conn, asked)
            else:
                await conn.send(invalid(asked["max_tokens"]))

        victim.on[PATH] = reads
        async with losing(victim, Engine()) as scene:
            refused = await scene.ask({**ASK, "max_tokens": echoed})
            assert (refused.status, refused.body.count(echoed.encode())) == (400, 1)
            assert len(victim.asked) == (2 if echoed == "return_token_ids" else 1)
            assert is_whole((await scene.ask(ASK)).body)

    run(body())


EVENTS = [role(), *[token(number, finish=number == 6) for number in range(1, 7)]]
assert EVENTS[0].count(b'"token_ids"') == 0


def test_an_engine_that_refuses_to_go_on() -> None:
    """The other way round: the one that is lost gives ids, the next one does not know of them."""
    refusal = {"error": {"message": "Unknown field: return_token_ids", "type": "BadRequestError", "code": 400}}

    async def body() -> None:
        second, third = Engine(), Engine()
        second.on["/v1/completions"] = sending(json_answer(refusal, 400))
        async with losing(Engine("fin"), second, third) as scene:
            assert is_whole((await scene.ask(ASK)).body)
            assert scene.witness.ends == [AttemptEnd.FAILED, AttemptEnd.FAILED, AttemptEnd.WON]

    run(body())


def test_an_answer_that_is_no_stream_has_its_ids_taken_out_too() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop", "token_ids": [5]}]}

    async def body() -> None:
        victim = Engine()
        victim.on[PATH] = sending(json_answer({**whole, "prompt_token_ids": [1, 2]}))
        async with losing(victim, Engine()) as scene:
            answer = await scene.ask(ASK)
            assert answer.status == 200
            assert b"token_ids" not in answer.body

    run(body())


def test_calls_that_do_not_stream_are_left_alone() -> None:
    async def body() -> None:
        victim = Engine()
        victim.on[PATH] = sending(json_answer({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}))
        async with losing(victim, Engine()) as scene:
            await scene.ask({**ASK, "stream": False})
            assert "return_token_ids" not in victim.asked[0].json()

    run(body())


# Long prompts: their ids come first of all, and are held back like all that is no content.


@pytest.mark.parametrize("tokens", [20_000, 250_000])
@pytest.mark.parametrize("fate", ["fin", "before content"])
def test_a_long_prompts_ids_are_held_back_and_dropped(tokens: int, fate: str) -> None:
    """The next one's first event repeats the ids that it goes on from, in more than one piece."""
    prompt = [100_000 + number for number in range(tokens)]
    content = "x " * tokens

    async def body() -> None:
        victim, other = Engine(), Engine()
        begun = [token(1), token(2)] if fate == "fin" else []
        victim.on[PATH] = streams(role(prompt), *begun, whole=False)
        tokens_of = json_answer({"count": tokens, "max_model_len": 1 << 20, "tokens": prompt})
        other.on["/tokenize"] = sending(tokens_of)
        other.on[PATH] = streams(role(prompt), *EVENTS[1:], DONE)

        async def goes_on(conn: Connection, request: Request) -> None:
            asked = request.json()["prompt"]
            assert asked == [*prompt, 101, 102]
            first = token(3, chat=False).replace(
                b'"token_ids":[103]', b'"token_ids":[103],"prompt_token_ids":' + orjson.dumps(asked)
            )
            rest = [token(number, chat=False, finish=number == 6) for number in range(4, 7)]
            await conn.send(sse_head() + b"".join([chunked(each) for each in [first, *rest, DONE]]) + END)

        other.on["/v1/completions"] = goes_on
        retry = PLUGINS.replace("rescue,", "rescue, retry,")
        async with losing(victim, other, plugins=retry) as scene:
            answer = await scene.ask({**ASK, "messages": [{"role": "user", "content": content}]})
            assert is_whole(answer.body), answer.body[-600:]
            assert b'prompt_token_ids":[' not in answer.body
            why = [attempt.why for attempt in scene.witness.calls[0].tries]
            assert why == ["first", "rescue" if fate == "fin" else "retry"]

    run(body(), limit=60)


def test_ids_of_a_prompt_that_is_longer_than_its_text_do_not_reach_the_client() -> None:
    """A template may make much of little: what is held back for it has an end."""
    prompt = list(range(100_000, 140_000))

    async def body() -> None:
        victim, other = Engine(), Engine()
        victim.on[PATH] = streams(role(prompt), token(1), token(2), whole=False)
        other.on["/tokenize"] = sending(json_answer({"max_model_len": 1 << 20, "tokens": prompt}))
        other.on["/v1/completions"] = streams(
            *[token(number, chat=False, finish=number == 6) for number in range(3, 7)], DONE
        )
        async with losing(victim, other) as scene:
            answer = await scene.ask(ASK)
            assert is_whole(answer.body)
            assert b"100001" not in answer.body

    run(body())
