"""The gate: how many calls are at the engine, who waits, who is refused, and that no slot is ever lost."""

from __future__ import annotations

import asyncio

import pytest
from fakes import RawClient, run, until
from sidecars import CHAT, HELLO, HeldEngine, found, sidecar, url_of, worker_settings
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.pace import LATEST, SOONEST, Pace

ONE = "concurrency: 1\nqueue: 2\n"


async def ask(process, **fields: object) -> RawClient:
    """A client that has sent its request."""
    client = await RawClient.connect(url_of(process))
    await client.request("POST", CHAT, b'{"model":"m","messages":[],"user":"%s"}' % str(fields.get("user")).encode())
    return client


def test_calls_wait_in_line_and_go_in_order():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            clients = []
            for user in ("a", "b", "c"):
                clients.append(await ask(process, user=user))
                await until(lambda: process.gate.inside + process.gate.waiting == len(clients))
            await until(lambda: len(engine.calls) == 1)
            assert process.gate.waiting == 2
            engine.release(3)
            for client in clients:
                assert (await client.read_answer()).status == 200
                await client.close()
            assert [call.json()["user"] for call in engine.calls] == ["a", "b", "c"]
            await until(lambda: process.gate.inside == 0)
            assert process.gate.waiting == 0

    run(body())


def test_a_full_line_is_an_honest_refusal():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            clients = [await ask(process) for _ in range(3)]
            await until(lambda: process.gate.waiting == 2)
            refused = await ask(process)
            answer = await refused.read_answer()
            assert answer.status == 503
            assert answer.json()["error"]["code"] == "worker_overloaded"
            assert int(answer.header("retry-after") or 0) >= 1
            assert answer.header("x-tailrace-load") == "running=1;waiting=2;kv=0.00;unsent"
            engine.release(3)
            for client in (*clients, refused):
                await client.close()
            await until(lambda: process.gate.inside == process.gate.waiting == 0)

    run(body())


def test_a_wait_that_is_too_long_is_refused():
    async def body():
        more = ONE + "queue_timeout: 0.05"
        async with HeldEngine() as engine, sidecar(found(engine.url), more) as process:
            first = await ask(process)
            await until(lambda: len(engine.calls) == 1)
            second = await ask(process)
            answer = await second.read_answer()
            assert answer.status == 503
            assert answer.header("retry-after") == "1"
            assert process.gate.waiting == 0
            engine.release()
            assert (await first.read_answer()).status == 200
            assert len(engine.calls) == 1
            await first.close()
            await second.close()

    run(body())


def test_DIS_04_gone_while_queued_never_reaches_the_engine():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            first = await ask(process, user="first")
            await until(lambda: len(engine.calls) == 1)
            second = await ask(process, user="second")
            await until(lambda: process.gate.waiting == 1)
            await second.close()
            await until(lambda: process.gate.waiting == 0)
            third = await ask(process, user="third")
            await until(lambda: process.gate.waiting == 1)
            engine.release(2)
            for client in (first, third):
                assert (await client.read_answer()).status == 200
                await client.close()
            assert [call.json()["user"] for call in engine.calls] == ["first", "third"]

    run(body())


def test_a_slot_that_comes_free_as_a_client_leaves_goes_to_the_next():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            clients = [await ask(process, user="a")]
            await until(lambda: len(engine.calls) == 1)
            for user in ("b", "c"):
                clients.append(await ask(process, user=user))
                await until(lambda: process.gate.waiting == len(clients) - 1)
            gate = process.gate
            (inside,) = gate._inside
            # In one turn of the loop: b is cancelled, and the slot comes free before b has heard of it.
            next(iter(gate._line.values())).cancel()
            gate.on_complete(inside, Outcome(Ending.COMPLETED, 200))
            assert (gate.inside, gate.waiting) == (1, 0)
            engine.release(2)
            for client in (clients[0], clients[2]):
                assert (await client.read_answer()).status == 200
            await until(lambda: gate.inside == 0)
            assert [call.json()["user"] for call in engine.calls] == ["a", "c"]
            for client in clients:
                await client.close()

    run(body())


@pytest.mark.parametrize("how", ["close", "rst"])
def test_a_client_that_leaves_frees_its_slot_and_the_engine(how: str):
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            client = await ask(process)
            await until(lambda: len(engine.calls) == 1)
            closed = len(engine.closed_at)
            await client.close() if how == "close" else client.rst()
            await until(lambda: process.gate.inside == 0)
            await until(lambda: len(engine.closed_at) > closed)
            await client.close()
            async with RawClient(url_of(process)) as other:
                engine.release()
                assert (await other.post(CHAT, HELLO)).status == 200

    run(body())


def test_DIS_06_no_way_to_end_loses_a_slot():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), "concurrency: 2\nqueue: 100") as process:
            url = url_of(process)
            for _ in range(10):
                async with RawClient(url) as client:
                    assert (await client.post(CHAT, b"{")).status == 400
                    assert (await client.post(CHAT, b'{"model": 3}')).status == 400
                held = [await ask(process) for _ in range(4)]
                await until(lambda: process.gate.inside + process.gate.waiting == 4)
                held[0].rst()
                held[3].rst()
                await held[1].close()
                await held[2].close()
                for client in (held[0], held[3]):
                    await client.close()
                await until(lambda: process.gate.inside == process.gate.waiting == 0)
            engine.release(2)
            async with RawClient(url) as one, RawClient(url) as two:
                answers = await asyncio.gather(one.post(CHAT, HELLO), two.post(CHAT, HELLO))
                assert [answer.status for answer in answers] == [200, 200]

    run(body())


def test_a_dead_engine_sends_the_line_away():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url, failures=1), ONE) as process:
            inside = await ask(process)
            await until(lambda: len(engine.calls) == 1)
            waiting = await ask(process)
            await until(lambda: process.gate.waiting == 1)
            engine.well = False
            answer = await waiting.read_answer()
            assert answer.status == 503
            assert answer.json()["error"]["code"] == "worker_unavailable"
            assert process.gate.waiting == 0
            engine.release()
            assert (await inside.read_answer()).status == 200
            await inside.close()
            await waiting.close()
            assert len(engine.calls) == 1

    run(body())


def test_settings_may_grow_while_calls_wait():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            clients = [await ask(process) for _ in range(3)]
            await until(lambda: process.gate.waiting == 2)
            await process.load(worker_settings(found(engine.url), "concurrency: 3"))
            await until(lambda: len(engine.calls) == 3)
            engine.release(3)
            for client in clients:
                assert (await client.read_answer()).status == 200
                await client.close()

    run(body())


def test_the_engine_is_told_of_every_call():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            progress = process.engine._watch.progress
            clients = [await ask(process), await ask(process)]
            await until(lambda: process.gate.waiting == 1)
            assert progress.inside == 1
            engine.release(2)
            for client in clients:
                assert (await client.read_answer()).status == 200
                await client.close()
            await until(lambda: progress.inside == 0)

    run(body())


def test_the_hint_when_to_come_back_follows_the_pace():
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert pace.wait_for(5) == SOONEST
    for _ in range(10):
        now[0] += 0.5
        pace.ended()
    now[0] += 0.5
    assert pace.wait_for(1) == SOONEST
    assert pace.wait_for(20) == pytest.approx(10.0)
    assert pace.wait_for(10_000) == LATEST
    now[0] += 100.0
    assert pace.wait_for(20) == SOONEST


def test_a_call_in_line_when_the_drain_is_over_may_go_to_another_worker():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE + "drain: 0\n") as process:
            at_the_engine, in_line = await ask(process), await ask(process)
            await until(lambda: process.gate.waiting == 1)
            draining = asyncio.ensure_future(process.drain(asyncio.Event()))
            for client, unsent in ((at_the_engine, False), (in_line, True)):
                answer = await client.read_answer()
                assert answer.status == 503
                assert answer.json()["error"]["code"] == "server_shutting_down"
                assert (answer.header("x-tailrace-load") or "").endswith(";unsent") == unsent
                await client.close()
            await draining
            assert process.gate.inside == process.gate.waiting == 0
            assert len(engine.calls) == 1

    run(body())
