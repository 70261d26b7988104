"""Feeds that end, fall silent or make no sense, and standings that grow old."""

from __future__ import annotations

import asyncio

import pytest
from fakes import Connection, Request, Upstream, chunked, decoded, json_answer, run, until
from tailrace.proxy.gateway import running
from tailrace.proxy.standing import Standing
from tailrace.proxy.watch.feed import PATH, FeedError, apply, read_line
from watched import FEED_HEAD, feeding, state, watching, worker_of


def test_a_line_is_believed_wherever_it_is_cut():
    async def script(conn: Connection, request: Request) -> None:
        await conn.send(FEED_HEAD)
        line = state(running=7, waiting=2, kv_use=0.5, models=[{"id": "m"}, {"id": "l", "parent": "m"}])
        for at in range(len(line)):
            await conn.send(chunked(line[at : at + 1]))
        await conn.wait_closed()

    async def body():
        async with Upstream(script) as upstream, watching(upstream.url) as process:
            standing = worker_of(process).standing
            await until(lambda: standing.models)
            assert (standing.running, standing.waiting, standing.kv_use) == (7, 2, 0.5)
            assert standing.models == {"m": "", "l": "m"}
            assert upstream.requests[0].target == PATH

    run(body())


@pytest.mark.parametrize("told", [{"ready": False, "draining": True}, {"ready": False, "dead": True}, {"ready": False}])
def test_who_says_that_it_takes_no_calls_gets_none_at_once(told: dict[str, bool]):
    async def body():
        go = asyncio.Event()

        async def then(conn: Connection) -> None:
            await conn.send(chunked(state(**told)))
            await go.wait()
            await conn.send(chunked(state()))
            await conn.wait_closed()

        async with Upstream(feeding(state(running=1), then=then)) as upstream, watching(upstream.url) as process:
            worker = worker_of(process)
            await until(lambda: not worker.eligible)
            assert process.unready()
            assert process.service.chain.models.entries["tiny"].candidates == []
            go.set()
            await until(lambda: worker.eligible)
            assert process.service.chain.models.entries["tiny"].candidates == [worker]

    run(body())


def test_a_silent_feed_makes_the_load_unknown_and_is_read_anew():
    async def body():
        async with Upstream(feeding(state(running=3))) as upstream:
            async with watching(upstream.url, more="stale: 0.6") as process:
                worker = worker_of(process)
                await until(lambda: worker.standing.running == 3)
                await until(lambda: worker.standing.running is None)
                assert worker.eligible
                await upstream.asked(2)
                await until(lambda: worker.standing.running == 3)
                assert upstream.closed_at

    run(body())


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"[]\n", b"{}\n", b'{"ready": "yes"}\n', b"\xff\n", b"x" * (1 << 20) + b"y"]
)
def test_a_feed_that_makes_no_sense_is_dropped_and_asked_for_again(line: bytes):
    async def body():
        async with Upstream(feeding(state(running=1), line), feeding(state(running=2))) as upstream:
            async with watching(upstream.url) as process:
                standing = worker_of(process).standing
                await until(lambda: standing.running == 2)
                assert standing.takes_calls

    run(body())


def test_feeds_that_end_are_read_anew():
    async def over(conn: Connection) -> None:
        await conn.send(chunked(b""))

    async def cut(conn: Connection) -> None:
        conn.rst()

    async def body():
        scripts = feeding(state(running=1), then=over), feeding(state(running=2), then=cut), feeding(state(running=3))
        async with Upstream(*scripts) as upstream, watching(upstream.url) as process:
            await until(lambda: worker_of(process).standing.running == 3)
            assert len(upstream.requests) == 3

    run(body())


def test_what_was_said_last_counts_while_the_feed_is_lost():
    async def cut(conn: Connection) -> None:
        conn.rst()

    async def body():
        said_drain = feeding(state(ready=False, draining=True), then=cut)
        async with Upstream(said_drain, feeding()) as upstream, watching(upstream.url) as process:
            worker = worker_of(process)
            await upstream.asked(2)
            assert worker.standing.draining
            assert not worker.eligible

    run(body())


def test_nobody_at_the_address_is_dead_until_somebody_is():
    async def body():
        async with Upstream(feeding(state())) as upstream:
            upstream.refuse()
            async with watching(upstream.url) as process:
                worker = worker_of(process)
                await until(lambda: worker.standing.dead)
                await upstream.listen_again()
                await until(lambda: worker.eligible)

    run(body())


def test_the_own_prefix_and_credentials_are_used():
    async def body():
        async with Upstream(json_answer({}, 404)) as upstream:
            pool = f"{{workers: ['{upstream.url}/team'], api_key: secret}}"
            text = f"listen: [127.0.0.1:0]\nmodels: {{m: {{pool: all}}}}\npools: {{all: {pool}}}"
            async with running(decoded(text), watching=True):
                request = await upstream.asked()
                assert request.target == "/team" + PATH
                assert request.header("authorization") == "Bearer secret"

    run(body())


def test_a_state_may_lack_what_it_does_not_know():
    standing = Standing(running=3, models={"m": ""})
    assert not apply(standing, read_line(b'{"ready": true, "running": "many", "kv_use": -1, "waiting": true}'), 5.0)
    assert (standing.running, standing.waiting, standing.kv_use, standing.seen) == (None, None, None, 5.0)
    assert standing.models == {"m": ""}
    assert apply(standing, read_line(b'{"ready": true, "models": [{"id": 3}, 4, {"id": "n", "parent": 5}]}'), 6.0)
    assert standing.models == {"n": ""}
    with pytest.raises(FeedError):
        read_line(b"null")


def test_a_load_on_an_answer_is_taken_for_what_it_is():
    standing = Standing()
    standing.hear(b"running=3;waiting=1;kv=0.25;unsent", 1.0)
    assert (standing.running, standing.waiting, standing.kv_use, standing.seen) == (3, 1, 0.25, 1.0)
    for nonsense in (b"running=-1;waiting=x;kv=nan", b"kv=7;kv=-1;kv=", b"=", b"running", b"running=" + b"9" * 1000):
        standing.hear(nonsense, 2.0)
    assert (standing.running, standing.waiting, standing.kv_use, standing.seen) == (3, 1, 0.25, 2.0)
    standing.forget_load()
    standing.hear(b"running=3;waiting=1;kv=0.25;unsent", 3.0)
    assert standing.running == 3
