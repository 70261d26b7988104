"""Keep-alive races and retry safety."""

from __future__ import annotations

import asyncio

import pytest
from fakes import (
    RawClient,
    chat_answer,
    chat_chunk,
    chunked,
    json_answer,
    run,
    sending,
    sse_answer,
    sse_head,
    stream_of,
)
from tailrace.proxy import stale
from tailrace.proxy.outcome import Ending

from cases.scene import CHAT, END, PATH, ROLE, STREAM, closed_promptly, framed, scene, until
from cases.scripts import FAILED as LOST
from cases.scripts import WELL, WON


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch):
    """What these workers do at once may take its time here."""
    monkeypatch.setattr(stale, "SOON", 1.0)


async def hangs_up(conn, request):
    conn.close()


async def resets(conn, request):
    conn.rst()


@pytest.mark.parametrize("lanes", [1, 4])
def test_KAR_01_idle_connection_closed_just_before_reuse(lanes):
    """A worker that drops idle connections at about the moment of the next request never shows."""

    async def script(conn, request):
        await conn.send(WELL)
        asyncio.get_running_loop().call_later(0.02, conn.close)

    async def lane(s):
        async with RawClient(s.url) as client:
            for step in range(40):
                await asyncio.sleep(0.015 + step % 10 * 0.001)
                assert (await client.post(PATH, CHAT)).status == 200

    async def body():
        async with scene(script) as s:
            await asyncio.gather(*[lane(s) for _ in range(lanes)])

    run(body())


def test_KAR_01_connections_do_not_rest_longer_than_their_limit():
    async def body():
        async with scene(WELL, more="timeouts: {upstream_idle: 0.3}") as s:
            await s.ask(CHAT)
            await until(lambda: s.upstream.closed_at, "the resting connection stayed")
            assert (await s.ask(CHAT)).status == 200
            assert len(s.upstream.connections) == 2

    run(body())


@pytest.mark.parametrize("script", [hangs_up, resets])
@pytest.mark.parametrize("body_of", [CHAT, STREAM])
def test_KAR_02_stale_connection_and_post(script, body_of):
    """Sent again once, on a new connection, with its whole body; and it counts as an attempt."""
    good = sse_answer(stream_of(["a"])) if "stream" in body_of else WELL

    async def body():
        async with scene(WELL, script, good) as s:
            await s.ask(CHAT)
            answer = await s.ask(body_of)
            assert (answer.status, answer.complete) == (200, True)
            assert [request.json() for request in s.upstream.requests] == [CHAT, body_of, body_of]
            first, second = s.upstream.connections[:2]
            assert len(first.requests) == 2
            assert second.requests or s.upstream.connections[2].requests
            assert s.witness.ends == [WON, LOST, WON]
            assert [attempt.number for attempt in s.witness.attempts] == [1, 1, 2]

    run(body())


@pytest.mark.parametrize("script", [hangs_up, resets])
def test_KAR_02_fresh_connection_is_not_tried_again(script):
    async def body():
        async with scene(script, WELL) as s:
            answer = await s.ask(CHAT)
            assert answer.status == 502
            assert len(s.upstream.requests) == 1
            assert s.witness.ends == [LOST]

    run(body())


def test_KAR_02_not_sent_again_once_it_was_worked_on(monkeypatch):
    """A worker that takes the request and dies of it does not take the next one with it."""
    monkeypatch.setattr(stale, "SOON", -1.0)

    async def body():
        async with scene(WELL, hangs_up, WELL) as s:
            await s.ask(CHAT)
            answer = await s.ask(CHAT)
            assert (answer.status, answer.json()["error"]["code"]) == (502, "upstream_lost")
            assert len(s.upstream.requests) == 2

    run(body())


def test_KAR_02_sent_again_only_once():
    async def body():
        async with scene(WELL, hangs_up, hangs_up, WELL) as s:
            await s.ask(CHAT)
            assert (await s.ask(CHAT)).status == 502
            assert len(s.upstream.requests) == 3

    run(body())


def test_KAR_02_not_sent_again_after_any_byte():
    async def begins(conn, request):
        await conn.send(b"HTTP/1.1 200")
        conn.close()

    async def body():
        async with scene(WELL, begins, WELL) as s:
            await s.ask(CHAT)
            assert (await s.ask(CHAT)).status == 502
            assert len(s.upstream.requests) == 2

    run(body())


def test_KAR_02_spare_connection_may_be_stale_too():
    """A connection that was opened ahead of need has rested as well."""
    hold = asyncio.Event()

    async def held(conn, request):
        await hold.wait()
        await conn.send(WELL)

    async def body():
        async with scene(WELL, held, hangs_up, WELL) as s:
            await s.ask(CHAT)
            waiting = await s.begin(CHAT)  # takes the resting connection, which has a spare opened
            await s.upstream.asked(2)
            await until(lambda: len(s.upstream.connections) == 2, "the spare")
            await until(lambda: s.process.pools["model:m"].workers[0].connections.resting == 1, "the spare at rest")
            assert (await s.ask(CHAT)).status == 200
            assert len(s.upstream.connections[1].requests) == 1
            hold.set()
            assert (await waiting.read_answer()).status == 200

    run(body())


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_KAR_04_no_hidden_double_send(method):
    """What is sent again is an attempt that can be seen, whatever the method; and it is sent at most twice."""
    more = "pools: {p: {workers: ['%s']}}\nroutes: [{path: /v1/things, pool: p, methods: [GET, DELETE]}]"

    async def body():
        async with scene(WELL, hangs_up, WELL) as plain:
            url = plain.upstream.url
            async with scene(WELL, more=more % url) as s, RawClient(s.url) as client:
                for expected in (1, 3):
                    await client.request(method, "/v1/things")
                    assert (await client.read_answer()).status == 200
                    assert len(plain.upstream.requests) == expected
                assert [request.method for request in plain.upstream.requests] == [method] * 3
                await s.outcome(2)
                assert s.witness.ends == [WON, LOST, WON]

    run(body())


def test_KAR_06_abort_while_the_body_is_sent():
    """A connection with half a request on it is never used again."""
    big = {**CHAT, "messages": [{"role": "user", "content": "x" * 4_000_000}]}

    async def body():
        async with scene(WELL) as s:
            await s.ask(CHAT)
            s.upstream.connections[0].pause_reading()
            client = await s.begin(big)
            await until(lambda: s.process.pools["model:m"].workers[0].inflight == 1, "the attempt")
            client.rst()
            assert (await s.outcome(2)).ending is Ending.CLIENT_GONE
            s.upstream.connections[0].resume_reading()
            assert (await s.ask(CHAT)).status == 200
            assert len(s.upstream.connections[0].requests) == 1

    run(body())


def test_KAR_06_abort_while_the_answer_is_read():
    async def streaming(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("first")]))
        await conn.wait_closed()

    async def body():
        async with scene(streaming, WELL) as s:
            client = await s.begin()
            await client.read_until(b"first")
            client.rst()
            await closed_promptly(s.upstream)
            answer = await s.ask(CHAT)
            assert answer.json() == chat_answer("well")
            assert len(s.upstream.connections[0].requests) == 1

    run(body())


@pytest.mark.parametrize(
    "dirty",
    [
        WELL + b"HTTP/1.1 200 OK\r\n",
        sse_answer(stream_of(["a"])) + b"x",
        WELL.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1),
        WELL.replace(b"HTTP/1.1", b"HTTP/1.0", 1),
        json_answer({"error": {"message": "x"}}, 400) + b"more",
    ],
)
def test_KAR_06_dirty_connection_is_not_reused(dirty):
    async def body():
        async with scene(dirty, WELL) as s:
            await s.ask(STREAM if b"event-stream" in dirty else CHAT)
            assert (await s.ask(CHAT)).json() == chat_answer("well")
            assert len(s.upstream.connections[0].requests) == 1

    run(body())


def test_KAR_06_bytes_while_resting_close_the_connection():
    async def chatty(conn, request):
        await conn.send(WELL)
        await asyncio.sleep(0.02)
        await conn.send(WELL)

    async def body():
        async with scene(chatty, WELL) as s:
            await s.ask(CHAT)
            await closed_promptly(s.upstream)
            assert (await s.ask(CHAT)).json() == chat_answer("well")

    run(body())


def test_KAR_06_early_answer_to_half_a_request():
    """A worker that answers before it has read the body: its answer counts, its connection does not."""

    async def body():
        async with scene(WELL) as s:
            await s.ask(CHAT)
            connection = s.upstream.connections[0]
            connection.pause_reading()
            client = await s.begin({**CHAT, "messages": [{"role": "user", "content": "x" * 8_000_000}]})
            await until(lambda: s.process.pools["model:m"].workers[0].inflight == 1, "the attempt")
            await connection.send(json_answer({"error": {"message": "too long"}}, 413))
            assert (await client.read_answer()).status == 413
            connection.resume_reading()
            assert (await s.ask(CHAT)).status == 200
            assert len(connection.requests) == 1

    run(body())


@pytest.mark.parametrize("end", [END, b"0\r\ntrailer: x\r\n\r\n", b"000;ext=1\r\n\r\n"])
def test_KAR_06_connection_is_reused_after_a_whole_stream(end):
    async def body():
        async with scene(sending(sse_head() + framed(stream_of(["a"])) + end)) as s:
            for _ in range(3):
                assert (await s.ask()).complete
            assert len(s.upstream.connections[0].requests) >= 2
            assert chunked(b"") == END

    run(body())
