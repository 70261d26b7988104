"""A sidecar keeps to what is left of a call's time: it refuses early, and lets the most urgent in first."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import orjson
import pytest
from fakes import RawClient, run, until
from sidecars import CHAT, HeldEngine, found, sidecar, simulated, url_of
from tailrace.proxy.budget import Budget
from tailrace.worker import admittance
from tailrace.worker.admittance import _budget
from tailrace.worker.gate import Gate, GateConfig

ONE = "concurrency: 1\nqueue: 8\n"
MS = 1_000_000


async def ask(process, user: str, *, stream: bool = False, **told: int) -> RawClient:
    """A client that has sent its request, with so many milliseconds left."""
    client = await RawClient.connect(url_of(process))
    headers = {f"x-tailrace-{name}-ms": str(ms) for name, ms in told.items()}
    await client.request(
        "POST", CHAT, orjson.dumps({"model": "m", "messages": [], "user": user, "stream": stream}), headers
    )
    return client


@pytest.mark.parametrize("told", [{"budget": 0}, {"ttft": 0}, {"budget": 5000, "ttft": 0}])
def test_what_is_late_already_never_reaches_the_engine(told: dict[str, int]):
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url)) as process:
            answer = await (client := await ask(process, "a", **told)).read_answer()
            assert answer.status == 503
            assert answer.json()["error"]["code"] == "worker_overloaded"
            assert (answer.header("x-tailrace-load") or "").endswith(";unsent")
            assert answer.header("retry-after") == "1"
            assert engine.calls == []
            await client.close()

    run(body())


def taking(process, seconds: float) -> None:
    """Have calls taken so long up to now."""
    now = asyncio.get_running_loop().time()
    for _ in range(8):
        process.gate._outlook.ended(seconds, now)


def test_a_turn_that_would_come_too_late_is_refused_at_once():
    async def body():
        more = "concurrency: 1\nqueue: 8\nqueue_timeout: 100\n"
        async with HeldEngine() as engine, sidecar(found(engine.url), more) as process:
            taking(process, 40.0)
            first = await ask(process, "first")
            await until(lambda: len(engine.calls) == 1)
            clients = [await ask(process, "patient", ttft=99_000)]
            await until(lambda: process.gate.waiting == 1)
            hasty = await ask(process, "hasty", ttft=30_000)
            assert (await hasty.read_answer()).status == 503, "one is inside: 40 s"
            # It goes before the patient one.
            clients.append(await ask(process, "urgent", ttft=60_000))
            await until(lambda: process.gate.waiting == 2)
            late = await ask(process, "late", ttft=99_000)
            assert (await late.read_answer()).status == 503, "three are before it: 120 s"
            nothing_said = await ask(process, "nothing said")
            assert (await nothing_said.read_answer()).status == 503, "nor within what the line is for"
            assert process.gate.waiting == 2
            engine.release(3)
            for client in (first, *clients):
                assert (await client.read_answer()).status == 200
            for client in (first, *clients, hasty, late, nothing_said):
                await client.close()
            assert [call.json()["user"] for call in engine.calls] == ["first", "urgent", "patient"]

    run(body())


def test_a_turn_without_the_time_for_the_engine_is_none():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            first = await ask(process, "first")
            await until(lambda: len(engine.calls) == 1)
            process.gate._soonest = 7.0
            hasty = await ask(process, "hasty", stream=True, ttft=6_000)
            answer = await hasty.read_answer()
            assert answer.status == 503
            assert answer.json()["error"]["message"].startswith("Its turn would come later")
            whole = await ask(process, "whole", ttft=6_000)
            await until(lambda: process.gate.waiting == 1)
            engine.release(2)
            for client in (first, whole):
                assert (await client.read_answer()).status == 200
            for client in (first, hasty, whole):
                await client.close()

    run(body())


def test_how_soon_streams_begin_is_learnt():
    async def body():
        gate = Gate(GateConfig(concurrency=1, queue=1, queue_timeout=1.0))

        def streamed(ms: int) -> float:
            winner = SimpleNamespace(sent_ns=1000 * MS, first_content_ns=(1000 + ms) * MS)
            gate._learn(SimpleNamespace(race=SimpleNamespace(winner=winner), stream=True))  # type: ignore[arg-type]
            return gate._soonest

        assert streamed(80) == pytest.approx(0.080)
        assert streamed(50) == pytest.approx(0.050)
        assert streamed(1050) == pytest.approx(0.100)

    run(body())


def test_ends_are_learnt_from():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url)) as process:
            for _ in range(8):
                client = await RawClient.connect(url_of(process))
                content = {
                    "model": "tiny",
                    "stream": True,
                    "max_tokens": 2,
                    "messages": [{"role": "user", "content": "x"}],
                }
                assert (await client.post(CHAT, content)).complete
                await client.close()
            await until(lambda: process.gate._outlook.known)
            assert 0.0 < process.gate._soonest < 60.0

    run(body())


def test_a_wait_ends_with_the_budget():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            first = await ask(process, "first")
            await until(lambda: len(engine.calls) == 1)
            second = await ask(process, "second", budget=500)
            answer = await second.read_answer()
            assert answer.status == 503
            assert answer.json()["error"]["message"].startswith("No slot came free within 0.")
            assert process.gate.waiting == 0
            engine.release()
            assert (await first.read_answer()).status == 200
            assert len(engine.calls) == 1
            await first.close()
            await second.close()

    run(body())


def test_the_most_urgent_goes_first():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            clients = []
            for user, told in (
                ("first", {}),
                ("none", {}),
                ("late", {"ttft": 50_000}),
                ("soon", {"ttft": 2_000}),
                ("sooner", {"budget": 1_500}),
            ):
                clients.append(await ask(process, user, **told))
                await until(lambda: process.gate.inside + process.gate.waiting == len(clients))
            await until(lambda: len(engine.calls) == 1)
            engine.release(5)
            for client in clients:
                assert (await client.read_answer()).status == 200
                await client.close()
            # Who says nothing is due when it would be sent away, in 10 s.
            assert [call.json()["user"] for call in engine.calls] == ["first", "sooner", "soon", "none", "late"]

    run(body())


def test_the_way_here_is_subtracted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admittance, "round_trip", lambda transport: 0.030)
    headers = {b"x-tailrace-budget-ms": b"600", b"x-tailrace-ttft-ms": b"200"}
    client = SimpleNamespace(transport=SimpleNamespace(get_extra_info=str))
    call = SimpleNamespace(head=SimpleNamespace(get=headers.get), client=client, started_ns=1000 * MS)
    budget = _budget(call)  # type: ignore[arg-type]
    assert isinstance(budget, Budget)
    assert (budget.ends_ns, budget.first_ns) == (1585 * MS, 1185 * MS)


def test_nothing_is_held_after_a_client_leaves_with_a_budget():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), ONE) as process:
            first = await ask(process, "first")
            await until(lambda: len(engine.calls) == 1)
            second = await ask(process, "second", budget=60_000)
            await until(lambda: process.gate.waiting == 1)
            await second.close()
            await until(lambda: process.gate.waiting == 0)
            engine.release()
            assert (await first.read_answer()).status == 200
            await asyncio.sleep(0)
            assert len(engine.calls) == 1
            await first.close()

    run(body())
