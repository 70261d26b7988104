"""The client, the clock and the gateway while a stream is on its way to another worker: nothing is left of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from cases.scene import END, errors_of
from fakes import Connection, RawClient, Request, chunked, run, sse_head, until
from lost import ASK, DONE, PROMPT, STEPS, Engine, held_at, losing, role, token
from tailrace.proxy.fault import DRAINED, Fault, fallen_silent
from tailrace.proxy.outcome import AttemptEnd, Ending
from tailrace.proxy.rescue.errand import Errand


@pytest.mark.parametrize("path", STEPS)
def test_the_client_leaves(path: str) -> None:
    async def body() -> None:
        other, held = held_at(path)
        async with losing(Engine("fin"), other, Engine()) as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            await client.read_until(b"w2 ")
            await client.close()
            async with asyncio.timeout(5):
                await held.left.wait()
            outcome = await scene.outcome()
            assert outcome.ending is Ending.CLIENT_GONE
            assert scene.witness.ends == [AttemptEnd.FAILED, AttemptEnd.CANCELLED]

    run(body())


def test_the_client_leaves_when_the_stream_has_gone_on() -> None:
    async def body() -> None:
        victim, other = Engine("fin"), Engine("hang", 1)
        async with losing(victim, other) as scene:
            client = await scene.begin(ASK)
            await client.read_until(b"w3 ")
            await client.close()
            assert (await scene.outcome()).ending is Ending.CLIENT_GONE
            await until(lambda: scene.upstreams[1].closed_at)
            assert scene.witness.ends == [AttemptEnd.FAILED, AttemptEnd.CANCELLED]

    run(body())


@pytest.mark.parametrize("path", STEPS)
def test_heartbeats_while_it_waits(path: str) -> None:
    async def body() -> None:
        other, held = held_at(path)
        async with losing(Engine("fin"), other, more="heartbeat: 200ms") as scene:
            client = await scene.begin(ASK)
            await client.read_until(b": heartbeat\n\n")
            await client.read_until(b": heartbeat\n\n")
            held.go.set()
            assert b"w6 " in await client.read_until(b"[DONE]")

    run(body())


@pytest.mark.parametrize("path", STEPS)
def test_the_limit_of_the_whole_call(path: str) -> None:
    async def body() -> None:
        other, held = held_at(path)
        async with losing(Engine("fin"), other, more="timeouts: {total: 500ms}") as scene:
            answer = await scene.ask(ASK)
            (error,) = errors_of(answer.body)
            assert "total limit" in error["message"]
            assert held.left.is_set() or await held.left.wait()
            outcome = await scene.outcome()
            assert (outcome.ending, outcome.status) == (Ending.DEADLINE, 504)

    run(body())


@pytest.mark.interpreted  # its relay is none
@pytest.mark.parametrize("held", [False, True])
def test_the_limit_of_the_whole_call_where_nobody_is_asked(held: bool) -> None:
    """But where a plugin holds back the last bytes, for which it has a limit of its own."""
    given_up: list[Fault] = []
    call = SimpleNamespace(
        deadline=1.0, chain=SimpleNamespace(timeouts=SimpleNamespace(total=1.0)), beat_if_due=lambda *_: None
    )
    relay: Any = SimpleNamespace(call=call, held=held, lost_at=0.0, give_up=given_up.append)
    errand = Errand(relay, fallen_silent("a test"), False)
    errand.visit(0.9)
    assert not given_up
    errand.visit(1.1)
    assert [fault.kind for fault in given_up] == ([] if held else ["total_timeout"])


@pytest.mark.parametrize("path", STEPS)
def test_the_gateway_is_drained_meanwhile(path: str) -> None:
    """It waits for the stream, and breaks it off honestly when its time is over."""

    async def body() -> None:
        other, held = held_at(path)
        async with losing(Engine("fin"), other, more="pre_stop: 0\ndrain: 300ms") as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            draining = asyncio.ensure_future(scene.process.drain(asyncio.Event()))
            rest = await client.read_until_close()
            await draining
            assert b"server_shutting_down" in rest
            assert b"[DONE]" not in rest
            assert (await scene.outcome()).fault.kind == "shutting_down"

    run(body())


def test_a_drained_gateway_lets_the_stream_go_on() -> None:
    async def body() -> None:
        other, held = held_at("/v1/completions")
        async with losing(Engine("fin"), other, more="pre_stop: 0\ndrain: 5s") as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            draining = asyncio.ensure_future(scene.process.drain(asyncio.Event()))
            await asyncio.sleep(0)
            held.go.set()
            assert b"w6 " in await client.read_until(b"[DONE]")
            await client.close()
            await draining

    run(body())


# A client that does not read.


async def read_to_done(client: RawClient) -> bytes:
    pieces = [b"", b""]
    while b"[DONE]" not in pieces[-2][-8:] + pieces[-1]:
        more = await client.read_some()
        assert more, pieces[-1][-500:]
        pieces.append(more)
    return b"".join(pieces)


def test_a_client_that_does_not_read_holds_the_other_worker_back() -> None:
    async def body() -> None:
        made: list[int] = []

        async def endless(conn: Connection, request: Request) -> None:
            first = 1 + len(request.json()["prompt"]) - len(PROMPT)
            await conn.send(sse_head())
            for number in range(first, first + 4000):
                await conn.send(chunked(token(number, chat=False, text="y" * 3000)))
                made.append(number)
            await conn.send(chunked(token(first + 4000, chat=False, finish=True)) + chunked(DONE) + END)

        other = Engine()
        other.on["/v1/completions"] = endless
        async with losing(Engine("fin"), other) as scene:
            client = await scene.begin({**ASK, "max_tokens": 100_000})
            await client.read_until(b"w1 ")
            (connection,) = scene.process.service.connections
            await until(lambda: connection.paused)
            before = -1
            while before != len(made):
                before = len(made)
                await asyncio.sleep(0.1)
            assert 0 < before < 4000
            assert connection.transport.get_write_buffer_size() < 1 << 20
            rest = await read_to_done(client)
            assert rest.count(b"y" * 3000) == 4000

    run(body())


def test_a_client_that_does_not_read_when_its_worker_is_lost() -> None:
    """What it was sent before comes first, and it is one stream."""

    async def body() -> None:
        victim, other = Engine(), Engine()
        count = 3000

        async def lost(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + chunked(role()) + chunked(token(1)))
            for number in range(2, count + 1):
                await conn.send(chunked(token(number, text="x" * 3000)))
            conn.close()

        async def ends(conn: Connection, request: Request) -> None:
            events = [token(count + 1, chat=False), token(count + 2, chat=False, finish=True), DONE]
            await conn.send(sse_head() + b"".join([chunked(event) for event in events]) + END)

        victim.on["/v1/chat/completions"] = lost
        other.on["/v1/completions"] = ends
        async with losing(victim, other) as scene:
            client = await scene.begin({**ASK, "max_tokens": 100_000})
            (connection,) = scene.process.service.connections
            await until(lambda: connection.paused)
            rest = await read_to_done(client)
            assert rest.count(b"x" * 3000) == count - 1
            assert rest.count(b"w3001 ") == rest.count(b"w3002 ") == 1
            assert other.bodies("/v1/completions")[0]["prompt"] == [*PROMPT, *range(101, 101 + count)]

    run(body())


def test_a_client_that_reads_again_on_the_way() -> None:
    """The connection whose reading it held up is gone by then."""

    async def body() -> None:
        victim = Engine()
        other, held = held_at("/tokenize")
        count = 3000

        async def floods(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + chunked(role()))
            for number in range(1, count + 1):
                await conn.send(chunked(token(number, text="x" * 3000)))
            await conn.wait_closed()

        async def ends(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + chunked(token(0, chat=False, ids=[9], finish=True)) + chunked(DONE) + END)

        victim.on["/v1/chat/completions"] = floods
        other.on["/v1/completions"] = ends
        async with losing(victim, other) as scene:
            client = await scene.begin({**ASK, "max_tokens": 100_000})
            (connection,) = scene.process.service.connections
            await until(lambda: connection.paused)
            connection.call.stop(DRAINED)
            await held.asked.wait()
            assert connection.paused
            got = 0
            while connection.paused:
                got += len(await client.read_some())
            assert got
            held.go.set()
            assert (await read_to_done(client)).count(b"w0 ") == 1

    run(body())
