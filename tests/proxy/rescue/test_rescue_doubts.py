"""Workers that fall silent, and connections that fail, before and while another one goes on with a stream."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from cases.scene import Scene, errors_of
from fakes import Connection, Request, run, until
from lost import ASK, STEPS, Engine, held_at, is_whole, losing, take_out, text_of
from tailrace.proxy.fault import DRAINED, fallen_silent
from tailrace.proxy.pool import ConnectionPool
from tailrace.proxy.rescue import request as asking


def doubt(scene: Scene, place: int, *, lost: bool) -> None:
    (worker,) = [worker for worker in scene.process.roster.workers if worker.name == scene.upstreams[place].url]
    for connection in tuple(worker.connections.busy):
        connection.doubt(fallen_silent("a test"), lost)


@pytest.mark.parametrize("obstacle", [False, True])
def test_a_worker_that_is_given_up(obstacle: bool) -> None:
    """What cannot go on elsewhere stays with it: it may come back."""

    async def body() -> None:
        victim, other = Engine("hang"), Engine()
        async with losing(victim, other) as scene:
            client = await scene.begin({**ASK, "seed": 5} if obstacle else ASK)
            await client.read_until(b"w2 ")
            doubt(scene, 0, lost=False)
            await asyncio.sleep(0.05)
            assert not other.asked
            assert not scene.witness.attempts
            doubt(scene, 0, lost=True)
            if obstacle:
                await asyncio.sleep(0.05)
                assert not other.asked
                assert not scene.upstream.closed_at
            else:
                assert b"w6 " in await client.read_until(b"[DONE]")
                assert scene.witness.attempts[0].fault.kind == "suspect"

    run(body())


def test_one_that_is_given_up_where_nobody_else_is() -> None:
    async def body() -> None:
        async with losing(Engine("hang"), Engine()) as scene:
            take_out(scene, 1)
            client = await scene.begin(ASK)
            await client.read_until(b"w2 ")
            doubt(scene, 0, lost=True)
            await asyncio.sleep(0.05)
            assert not scene.upstream.closed_at

    run(body())


@pytest.mark.parametrize("path", STEPS)
def test_a_doubt_about_the_one_that_is_to_go_on(path: str) -> None:
    async def body() -> None:
        second, held = held_at(path)
        third = Engine()
        async with losing(Engine("fin"), second, third) as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            doubt(scene, 1, lost=False)
            assert b"w6 " in await client.read_until(b"[DONE]")
            assert third.asked
            assert held.left.is_set() or await held.left.wait()

    run(body())


def test_a_doubt_where_nobody_else_may_be_asked_changes_nothing() -> None:
    async def body() -> None:
        second, held = held_at("/v1/completions")
        async with losing(Engine("fin"), second) as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            doubt(scene, 1, lost=True)
            held.go.set()
            assert b"w6 " in await client.read_until(b"[DONE]")

    run(body())


def test_a_worker_whose_time_to_drain_is_over() -> None:
    async def body() -> None:
        async with losing(Engine("hang"), Engine()) as scene:
            client = await scene.begin(ASK)
            await client.read_until(b"w2 ")
            call = next(iter(scene.process.service.connections)).call
            call.stop(DRAINED)
            assert b"w6 " in await client.read_until(b"[DONE]")
            assert scene.witness.attempts[0].fault is DRAINED

    run(body())


# Connections.


def test_a_resting_connection_that_is_closed_in_the_moment_of_its_use() -> None:
    """It is no attempt of its own: the same worker is asked on a new one."""

    async def body() -> None:
        second = Engine()
        async with losing(Engine("fin"), second) as scene:
            (worker,) = [worker for worker in scene.process.roster.workers if worker.name == scene.upstreams[1].url]
            for _ in range(2):
                opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                worker.connections.connect(opened.set_result, opened.set_exception)
                connection = await opened
                connection.rested = True
                worker.connections.rest(connection)
            await until(lambda: len(scene.upstreams[1].connections) >= 2)
            resting = list(scene.upstreams[1].connections)
            tokenizes = STEPS["/tokenize"]

            async def closes(conn: Connection, request: Request) -> None:
                if conn in resting:
                    conn.close()
                else:
                    await tokenizes(conn, request)

            second.on["/tokenize"] = closes
            assert is_whole((await scene.ask(ASK)).body)
            assert second.paths() == ["/tokenize", "/tokenize", "/v1/completions"]
            assert len(scene.witness.attempts) == 2

    run(body())


def test_a_worker_that_cannot_be_reached_has_a_limit_too() -> None:
    async def body() -> None:
        async with losing(Engine("fin"), Engine(), Engine()) as scene:
            scene.upstreams[1].refuse()
            assert is_whole((await scene.ask(ASK)).body)
            assert scene.witness.attempts[1].fault.kind == "connect_failed"

    run(body())


@pytest.mark.interpreted  # a method is replaced
def test_the_limit_of_the_call_holds_while_a_connection_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a host that drops packets, for instance."""
    opens = ConnectionPool._open

    async def body() -> None:
        async with losing(
            Engine("fin"), Engine(), more="heartbeat: 150ms\ntimeouts: {total: 800ms, connect: 20s}"
        ) as scene:

            async def never(pool: ConnectionPool) -> Any:
                if pool.address.shown == scene.upstreams[1].url:
                    await asyncio.sleep(30)
                return await opens(pool)

            monkeypatch.setattr(ConnectionPool, "_open", never)
            answer = await scene.ask(ASK)
            (error,) = errors_of(answer.body)
            assert "total limit" in error["message"]
            assert answer.body.count(b": heartbeat") >= 2

    run(body())


def test_a_broken_step_is_logged_and_ends_the_stream(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a bug")

    async def body() -> None:
        for name in ("tokenize", "go_on", "room", "stops_of"):
            with monkeypatch.context() as patched:
                patched.setattr(asking, name, broken)
                async with losing(Engine("fin"), Engine()) as scene:
                    answer = await scene.ask({**ASK, "stop": "never"})
                    assert len(errors_of(answer.body)) == 1
                    assert text_of(answer.body) == "w1 w2 "
        assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 4

    run(body())
