"""Every way in which a worker is lost behind content: the client reads the answer that it would have read."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from cases.scene import END, errors_of
from fakes import PATH, Connection, Request, chunked, run, sse_head
from lost import (
    ASK,
    COUNT,
    DONE,
    KILLED,
    PLUGINS,
    PROMPT,
    WHOLE,
    Engine,
    finishes,
    is_whole,
    losing,
    rescues,
    role,
    take_out,
    text_of,
    token,
    usages,
)  # fmt: skip
from tailrace.proxy.outcome import AttemptEnd, Ending

FATES = ["rst", "fin", "half", "half in a chunk", "killed", "killed in pieces", "end", "done", "abort"]
USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("after", [1, 2, 5])
def test_it_goes_on(fate: str, after: int) -> None:
    async def body() -> None:
        victim, other = Engine(fate, after), Engine()
        async with losing(victim, other) as scene:
            answer = await scene.ask(ASK)
            assert is_whole(answer.body), answer.body
            assert answer.complete
            assert b'"token_ids":[' not in answer.body
            assert b'"prompt_token_ids":[' not in answer.body
            outcome = await scene.outcome()
            assert outcome.ending is Ending.COMPLETED
        assert other.paths() == ["/tokenize", "/v1/completions"]
        (asked,) = other.bodies("/v1/completions")
        assert asked["prompt"] == PROMPT + [100 + number for number in range(1, after + 1)]
        assert asked["max_tokens"] == COUNT - after
        assert scene.witness.ends == [AttemptEnd.FAILED, AttemptEnd.WON]

    run(body())


@pytest.mark.parametrize("last", [KILLED + DONE, DONE, token(3).replace(b'n":null', b'n":"abort"')])
@pytest.mark.parametrize("chunks", [True, False])
def test_all_of_it_came_in_one_read(last: bytes, chunks: bool) -> None:
    """The first content, and how the worker was lost."""

    async def body() -> None:
        victim, other = Engine(), Engine()
        events = [role(), token(1), token(2), last]

        async def lost(conn: Connection, request: Request) -> None:
            pieces = events if chunks else [b"".join(events)]
            await conn.send(sse_head() + b"".join([chunked(piece) for piece in pieces]) + END)

        victim.on[PATH] = lost
        async with losing(victim, other) as scene:
            answer = await scene.ask(ASK)
            assert is_whole(answer.body), answer.body
            assert scene.witness.ends == [AttemptEnd.FAILED, AttemptEnd.WON]
        assert other.paths() == ["/tokenize", "/v1/completions"]

    run(body())


def test_one_that_hangs() -> None:
    async def body() -> None:
        victim, other = Engine("hang"), Engine()
        plugins = PLUGINS.replace("rescue", "rescue: {silence: 300ms}")
        async with losing(victim, other, plugins=plugins) as scene:
            answer = await scene.ask(ASK)
            assert is_whole(answer.body)
            assert scene.witness.attempts[0].fault.kind == "gap_timeout"
            assert scene.upstreams[0].closed_at

    run(body())


def test_one_that_hangs_is_waited_for_where_nobody_else_is() -> None:
    async def body() -> None:
        victim, other = Engine("hang"), Engine()
        plugins = PLUGINS.replace("rescue", "rescue: {silence: 200ms}")
        async with losing(victim, other, plugins=plugins, more="timeouts: {gap: 1s}") as scene:
            take_out(scene, 1)
            answer = await scene.ask(ASK)
            (error,) = errors_of(answer.body)
            assert "1 s" in error["message"]
            assert text_of(answer.body) == "w1 w2 "
            assert not other.asked

    run(body())


@pytest.mark.parametrize("asked", [{}, USAGE])
def test_all_but_the_end_was_there(asked: dict[str, Any]) -> None:
    """No other worker is needed for that."""

    async def body() -> None:
        victim, other = Engine("unpaid", COUNT), Engine()
        async with losing(victim, other) as scene:
            answer = await scene.ask({**ASK, **asked})
            assert is_whole(answer.body)
            figures = {"prompt_tokens": 3, "total_tokens": 9, "completion_tokens": 6}
            assert usages(answer.body) == [figures] * len(asked)
            assert not other.asked

    run(body())


@pytest.mark.parametrize("fate", ["rst", "killed", "abort"])
def test_the_second_is_lost_too(fate: str) -> None:
    async def body() -> None:
        engines = Engine("fin", 2), Engine(fate, 2), Engine()
        async with losing(*engines) as scene:
            answer = await scene.ask({**ASK, **USAGE})
            assert is_whole(answer.body)
            assert usages(answer.body)[-1]["completion_tokens"] == COUNT
            assert scene.witness.ends == [AttemptEnd.FAILED, AttemptEnd.FAILED, AttemptEnd.WON]
        (asked,) = engines[2].bodies("/v1/completions")
        assert asked["prompt"] == [*PROMPT, 101, 102, 103, 104]
        assert asked["max_tokens"] == 2

    run(body())


def test_three_attempts_are_the_most() -> None:
    async def body() -> None:
        engines = Engine("fin", 1), Engine("fin", 1), Engine("fin", 1), Engine()
        async with losing(*engines) as scene:
            answer = await scene.ask(ASK)
            assert text_of(answer.body) == "w1 w2 w3 "
            assert len(errors_of(answer.body)) == 1
            assert b"[DONE]" not in answer.body
            assert not answer.complete
            assert not finishes(answer.body)
            assert (await scene.outcome()).ending is Ending.UPSTREAM_LOST
        assert not engines[3].asked

    run(body())


def gone_on(scene: Any) -> list[Any]:
    return [given for given in rescues(scene).metrics() if given[0] == "streams_total"]


def test_the_operator_reads_who_went_on_and_why(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with losing(Engine("fin"), Engine()) as scene:
            with caplog.at_level(logging.INFO, "tailrace"):
                await scene.ask(ASK)
            first, second = [upstream.url for upstream in scene.upstreams]
            (line,) = [record.getMessage() for record in caplog.records if "goes on at" in record.getMessage()]
            assert f"at worker {second}" in line
            assert f"worker {first} was lost (connection_lost" in line
            assert next(iter(rescues(scene).metrics())) == (
                "streams_total",
                {"from": first, "why": "connection_lost"},
                1,
            )
            worker = scene.witness.calls[0].tries[0].worker
            assert len(gone_on(scene)) == 1, "a worker that is lost may be back"
            pools, worker.pools = worker.pools, []
            assert len(gone_on(scene)) == 1, "nothing goes untold"
            assert not gone_on(scene)
            worker.pools = pools

    run(body())


def test_time_to_first_token_is_that_of_the_first_worker() -> None:
    async def body() -> None:
        async with losing(Engine("fin"), Engine()) as scene:
            await scene.ask(ASK)
            outcome = await scene.outcome()
            first, second = scene.witness.calls[0].tries
            assert outcome.first_content_ns == first.first_content_ns < second.sent_ns < second.first_content_ns

    run(body())


assert WHOLE.count(" ") == COUNT
