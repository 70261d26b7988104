"""Engines without a sidecar: asked now and then, and not shown the hop key."""

from __future__ import annotations

import asyncio

import pytest
from fakes import Connection, Request, Upstream, answer, decoded, json_answer, run, until
from sidecars import KEY, found, sidecar, simulated
from tailrace.proxy.gateway import running
from tailrace.proxy.watch import watcher
from tailrace.proxy.watch.ask import asking
from tailrace.proxy.watch.asked import Answer, Asked
from tailrace.proxy.watch.feed import PATH
from tailrace.worker.sim import Adapter, Fault
from watched import chat, watching, worker_of, yaml


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "POLL", 0.02)
    monkeypatch.setattr(watcher, "LATEST", 0.1)


def test_its_models_and_adapters_are_listed():
    async def body():
        async with simulated(lora_modules=(Adapter(name="lora", path="/l"),)) as sim, watching(sim.url) as process:
            standing = worker_of(process).standing
            await until(lambda: standing.models)
            assert standing.models == {"tiny": "", "lora": "tiny"}
            assert (await chat(process, model="lora")).status == 200

    run(body())


def test_how_far_it_is_is_asked_of_a_connection_that_is_open():
    async def body():
        async with simulated() as sim, watching(sim.url) as process:
            worker = worker_of(process)
            await until(lambda: worker.standing.models)
            assert (await chat(process)).status == 200
            worker.connections.round_trip = 1.0
            worker.connections.measure()
            assert 0.0 < worker.connections.round_trip < 0.5

    run(body())


def test_it_leaves_when_its_health_check_fails_and_comes_back():
    async def body():
        async with simulated() as sim, watching(sim.url) as process:
            worker = worker_of(process)
            await until(lambda: worker.standing.models)
            sim.fail(Fault(fail="unhealthy"))
            await until(lambda: not worker.eligible)
            assert "503" in worker.standing.reason
            assert (await chat(process)).status == 503
            sim.heal()
            await until(lambda: worker.eligible)
            assert (await chat(process)).status == 200

    run(body())


def test_it_leaves_when_nobody_listens_and_comes_back():
    async def body():
        async with simulated() as sim, watching(sim.url) as process:
            worker, port = worker_of(process), sim.port
            await until(lambda: worker.standing.models)
            await sim.close()
            await until(lambda: worker.standing.dead)
            async with simulated(port=port):
                await until(lambda: worker.eligible)

    run(body())


def test_an_engine_that_is_only_slow_stays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watcher, "ANSWER", 0.05)

    async def script(conn: Connection, request: Request) -> None:
        if request.target == PATH:
            await conn.send(json_answer({"detail": "Not Found"}, 404))
        else:
            await conn.wait_closed()

    async def body():
        async with Upstream(script) as upstream, watching(upstream.url) as process:
            await upstream.asked(5)
            assert worker_of(process).eligible

    run(body())


@pytest.mark.parametrize("status", [401, 404, 405])
def test_an_engine_without_a_health_check_stays(status: int):
    async def body():
        async with Upstream(json_answer({}, status)) as upstream, watching(upstream.url) as process:
            await upstream.asked(6)
            assert worker_of(process).eligible

    run(body())


@pytest.mark.parametrize(
    "models",
    [b"nonsense", b"[]", b'{"data": 3}', b'{"data": [1, {"id": 2}]}', b"x" * (2 << 20)],
    ids=["text", "list", "number", "entries", "endless"],
)
def test_a_list_of_models_that_is_none_changes_nothing(models: bytes):
    async def script(conn: Connection, request: Request) -> None:
        listed = request.target == "/v1/models"
        await conn.send(answer(200, models if listed else b"{}"))

    async def body():
        async with Upstream(script) as upstream, watching(upstream.url) as process:
            await upstream.asked(8)
            assert worker_of(process).eligible
            assert not worker_of(process).standing.models

    run(body())


def test_it_is_not_shown_the_hop_key_once_it_is_known():
    async def body():
        async with simulated() as sim, watching(sim.url, more=f"hop_key: {KEY}") as process:
            worker = worker_of(process)
            await until(lambda: worker.standing.models)
            process.watch._line_due = 0.0
            await asyncio.sleep(0.3)
            await chat(process)
            told = [b"x-tailrace-hop" in request.headers for request in sim.received]
            assert told[0]
            assert not any(told[1:])

    run(body())


def test_a_sidecar_that_takes_the_place_of_a_bare_engine_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watcher, "LOOK_AGAIN", 0.1)

    async def body():
        async with simulated() as bare, simulated() as behind, watching(bare.url, more=f"hop_key: {KEY}") as process:
            worker, port = worker_of(process), bare.port
            await until(lambda: worker.standing.models)
            await bare.close()
            await until(lambda: not worker.eligible)
            async with sidecar(found(behind.url), f"hop_key: {KEY}", f"127.0.0.1:{port}") as side:
                await until(lambda: side.feed.subscribers == 1)
                await until(lambda: worker.eligible)
                assert (await chat(process)).status == 200

    run(body())


def test_a_gateway_ends_while_it_asks():
    async def silent(conn: Connection, request: Request) -> None:
        await conn.wait_closed()

    async def body():
        async with Upstream(silent) as upstream:
            async with watching(upstream.url):
                await upstream.asked()
            await until(lambda: upstream.closed_at)
        async with Upstream(json_answer({}, 404), silent) as upstream:
            async with watching(upstream.url) as process:
                await upstream.asked(2)
                await process.load(decoded(yaml("http://127.0.0.1:1")))
            await until(lambda: len(upstream.closed_at) >= 1)

    run(body())


def test_a_connection_that_was_asked_on_may_carry_a_call_at_once():
    """One that took it when it came to rest, before whoever asked goes on."""

    async def body():
        async with Upstream(json_answer({})) as upstream, running(decoded(yaml(upstream.url))) as process:
            worker = worker_of(process)
            asked, call = Asked(), Asked()
            async with asking(worker, "/health", asked):
                assert (await asked.answer).status == 200
                connection = worker.connections.take()
                assert connection is not None
                connection.send(call, b"GET / HTTP/1.1\r\n\r\n", b"")
            assert await call.answer == Answer(200, b"{}")

    run(body())
