"""What cannot be continued ends as it would have without a rescue: honestly, with the fault that came first."""

from __future__ import annotations

from typing import Any

import pytest
from cases.scene import errors_of
from fakes import Answer, Connection, Request, Script, chunked, json_answer, run, sending, sse_answer, sse_head
from lost import ASK, DONE, KILLED, PLUGINS, PROMPT, Engine, is_whole, losing, rescues, role, take_out, text_of, token
from tailrace.proxy.outcome import AttemptEnd, Ending

FATES = ["rst", "half", "killed", "end", "done", "abort"]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
OBSTACLES: list[dict[str, Any]] = [
    {"seed": 7},
    {"tools": [TOOL]},
    {"response_format": {"type": "json_object"}},
    {"guided_json": {}},
    {"presence_penalty": 0.5},
    {"logprobs": True},
    {"of_a_newer_engine": 1},
]


def served(answer: Answer) -> tuple[Any, ...]:
    return answer.status, answer.body, answer.complete


async def ended(plugins: str, body: Any, *engines: Engine) -> tuple[tuple[Any, ...], Any]:
    async with losing(*engines, plugins=plugins) as scene:
        answer = await scene.ask(body)
        outcome = await scene.outcome()
        return served(answer), (outcome.ending, outcome.status, outcome.fault)


@pytest.mark.parametrize("fate", FATES)
def test_an_obstacle_in_the_request(fate: str) -> None:
    async def body() -> None:
        without = PLUGINS.replace(" rescue,", "")
        for fields in OBSTACLES if fate == "rst" else OBSTACLES[:1]:
            other = Engine()
            plain = await ended(without, {**ASK, **fields}, Engine(fate), Engine())
            assert await ended(PLUGINS, {**ASK, **fields}, Engine(fate), other) == plain
            assert not other.asked

    run(body())


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("failing", ["/tokenize", "/v1/completions"])
def test_nobody_goes_on_with_it(fate: str, failing: str) -> None:
    """What the client reads is what it would have read of the first worker's end."""

    async def body() -> None:
        victim, other = Engine(fate), Engine()
        for engine in (victim, other):
            engine.on[failing] = sending(json_answer({"error": {"message": "no", "type": "x", "code": 500}}, 500))
        (status, told, complete), (ending, _, fault) = await ended(PLUGINS, ASK, victim, other)
        without = PLUGINS.replace(" rescue,", "")
        plain, (plain_ending, _, plain_fault) = await ended(without, ASK, Engine(fate), Engine())
        if fate == "done":  # without a rescue it would have been taken for the end
            assert (ending, complete, len(errors_of(told))) == (Ending.UPSTREAM_LOST, False, 1)
            return
        assert (status, complete) == (plain[0], plain[2])
        assert (ending, fault) == (plain_ending, plain_fault)
        assert b"[DONE]" not in told
        # Half an event is not sent where events are read: the error can be told behind the last whole one.
        whole = plain[1][: plain[1].rindex(b"\n\n") + 2] if fate == "half" else plain[1]
        assert text_of(told) == text_of(whole) == "w1 w2 "
        if fate != "half":
            assert told.split(b"\n\n")[-2] == whole.split(b"\n\n")[-2]

    run(body())


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([role(), token(1).replace(b'"content"', b'"reasoning"'), token(2)], "answer"),
        ([role(), token(1, ids=[7]).replace(b"[7]", b"[7,]"), token(2)], "answer"),
        ([role(), token(1).replace(b"[101]", b"null"), token(2).replace(b"[102]", b"null")], "no_ids"),
        ([role(), token(1).replace(b',"token_ids":[101]', b""), token(2).replace(b"[102]", b"null")], "no_ids"),
        ([role(), token(1), token(2).replace(b"[102]", b"null"), token(3)], "answer"),
        ([role(), token(1).replace(b"[101]", b"null"), token(2)], "answer"),
    ],
)
def test_an_obstacle_in_the_answer(pieces: list[bytes], why: str) -> None:
    async def body() -> None:
        async def lost(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + b"".join([chunked(piece) for piece in pieces]))
            conn.close()

        victim, other = Engine(), Engine()
        victim.on["/v1/chat/completions"] = lost
        async with losing(victim, other) as scene:
            answer = await scene.ask(ASK)
            assert len(errors_of(answer.body)) == 1
            assert b"[DONE]" not in answer.body
            assert not answer.complete
            assert not other.asked
            assert {labels["why"]: count for _, labels, count in rescues(scene).metrics() if count} == {why: 1}

    run(body())


async def _rst(conn: Connection, request: Request) -> None:
    conn.rst()


async def _close(conn: Connection, request: Request) -> None:
    conn.close()


def stream(*events: bytes) -> Script:
    return sending(sse_answer(events))


def plain(body: Any, status: int = 200) -> Script:
    return sending(json_answer(body, status))


BEFORE_ITS_FIRST_TOKEN: list[tuple[str, Script]] = [
    ("/tokenize", plain({"detail": "Not Found"}, 404)),
    ("/tokenize", plain({"error": "Unauthorized"}, 401)),
    ("/tokenize", plain({"tokens": ["x"]})),
    ("/tokenize", plain({"tokens": [True, 2, 3]})),
    ("/tokenize", plain({"count": 3})),
    ("/tokenize", plain([1, 2, 3])),
    ("/tokenize", sending(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{x")),
    ("/tokenize", sending(b"no http at all\r\n\r\n")),
    ("/tokenize", _rst),
    ("/tokenize", _close),
    ("/v1/completions", plain({"error": {"message": "too long", "type": "x", "code": 400}}, 400)),
    ("/v1/completions", plain({"error": {"message": "busy", "type": "x", "code": 503}}, 503)),
    ("/v1/completions", plain({"choices": []})),
    ("/v1/completions", _rst),
    ("/v1/completions", stream()),
    ("/v1/completions", stream(DONE)),
    ("/v1/completions", stream(KILLED, DONE)),
    ("/v1/completions", stream(b"data: {nonsense\n\n", token(3, chat=False), DONE)),
    ("/v1/completions", stream(token(3, chat=False, text="").replace(b'n":null', b'n":"abort"'), DONE)),
    ("/v1/completions", stream(token(3, chat=False, text=""), KILLED, DONE)),
]


@pytest.mark.parametrize("number", range(len(BEFORE_ITS_FIRST_TOKEN)))
def test_the_next_one_goes_on_where_one_fails_before_its_first_token(number: int) -> None:
    path, script = BEFORE_ITS_FIRST_TOKEN[number]

    async def body() -> None:
        victim, second, third = Engine("fin"), Engine(), Engine()
        second.on[path] = script
        async with losing(victim, second, third) as scene:
            answer = await scene.ask(ASK)
            assert is_whole(answer.body), answer.body
            assert second.paths()[-1] == path
            assert scene.witness.ends == [AttemptEnd.FAILED, AttemptEnd.FAILED, AttemptEnd.WON]
        assert third.bodies("/v1/completions")[0]["prompt"] == [*PROMPT, 101, 102]

    run(body())


def test_a_worker_that_refuses_a_step_as_the_callers_fault_is_not_blamed() -> None:
    async def body() -> None:
        second = Engine()
        second.on["/tokenize"] = plain({"detail": "Not Found"}, 404)
        async with losing(Engine("fin"), second, Engine()) as scene:
            await scene.ask(ASK)
            fault = scene.witness.attempts[1].fault
            assert (fault.kind, fault.whose, fault.status) == ("http_error", "client", 404)

    run(body())


def test_a_step_that_hangs_has_a_limit() -> None:
    async def body() -> None:
        second, third = Engine(), Engine()

        async def hang(conn: Connection, request: Request) -> None:
            await conn.wait_closed()

        second.on["/tokenize"] = hang
        limits = "timeouts: {first_content_base: 300ms}"
        async with losing(Engine("fin"), second, third, more=limits) as scene:
            assert is_whole((await scene.ask(ASK)).body)
            assert scene.witness.attempts[1].fault.kind == "first_content_timeout"

    run(body())


def test_another_tokenizer_is_not_gone_on_with() -> None:
    async def body() -> None:
        second, third = Engine(), Engine()
        second.on["/tokenize"] = plain({"count": 4, "max_model_len": 99, "tokens": [1, 2, 3, 4]})
        async with losing(Engine("fin"), second, third) as scene:
            answer = await scene.ask(ASK)
            assert len(errors_of(answer.body)) == 1
            assert not answer.complete
            assert second.paths() == ["/tokenize"]
            assert not third.asked
            assert scene.witness.ends == [AttemptEnd.FAILED, AttemptEnd.CANCELLED]

    run(body())


def test_the_first_fault_is_the_one_that_is_told() -> None:
    async def body() -> None:
        second, third = Engine(), Engine()
        second.on["/tokenize"] = third.on["/tokenize"] = plain({"error": {"message": "later", "code": 500}}, 500)
        async with losing(Engine("fin"), second, third) as scene:
            answer = await scene.ask(ASK)
            (error,) = errors_of(answer.body)
            assert error["code"] == "upstream_lost"
            outcome = await scene.outcome()
            assert (outcome.ending, outcome.fault.kind) == (Ending.UPSTREAM_LOST, "connection_lost")
            assert scene.witness.calls[0].race is None

    run(body())


def test_an_only_worker_is_asked_again() -> None:
    """It may have lost that one connection."""

    async def body() -> None:
        only, idle = Engine("fin", 3), Engine()
        async with losing(only, idle) as scene:
            take_out(scene, 1)
            assert is_whole((await scene.ask(ASK)).body)
            assert not idle.asked

    run(body())


def test_an_only_worker_that_is_gone() -> None:
    async def body() -> None:
        only, idle = Engine(), Engine()
        async with losing(only, idle) as scene:
            take_out(scene, 1)

            async def dies(conn: Connection, request: Request) -> None:
                await conn.send(sse_head() + b"".join([chunked(each) for each in (role(), token(1), token(2))]))
                scene.upstream.refuse()
                for each in scene.upstream.connections:
                    each.close()

            only.on["/v1/chat/completions"] = dies
            answer = await scene.ask(ASK)
            (error,) = errors_of(answer.body)
            assert error["code"] == "upstream_lost"
            assert text_of(answer.body) == "w1 w2 "

    run(body())


def test_a_request_that_makes_no_sense_here_does_not_leave_its_stream_hanging() -> None:
    """An engine took it, and its way of continuing is not known."""

    async def body() -> None:
        for fields in ({"max_tokens": 6.0}, {"stop": [""]}, {"stop": {"a": 1}}, {"min_tokens": "2"}):
            victim = Engine()

            async def lost(conn: Connection, request: Request) -> None:
                await conn.send(sse_head() + chunked(role()) + chunked(token(1)))
                conn.close()

            victim.on["/v1/chat/completions"] = lost
            async with losing(victim, Engine()) as scene:
                answer = await scene.ask({**ASK, **fields})
                assert errors_of(answer.body) or is_whole(answer.body), (fields, answer.body)

    run(body())
