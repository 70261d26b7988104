"""RTE-11 and RTE-14: old reports of load do not outweigh what is known here, and sessions stay, but not for ever."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest
from fakes import CHAT, PATH, Connection, RawClient, Request, Upstream, chat_answer, gateway, json_answer, run, yaml_for
from tailrace.plugins.route.familiar import Familiar

TAIL = "[route: {policy: tail}]"


class Held:
    """A script that answers when it is let go."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def __call__(self, conn: Connection, request: Request) -> None:
        await self.free.wait()
        await conn.send(json_answer(chat_answer("ok")))


async def ask(process: Any, session: str | None = None, body: dict[str, Any] = CHAT) -> int:
    headers = {} if session is None else {"x-session-id": session}
    async with RawClient(process.doors[0].shown) as client:
        return (await client.post(PATH, body, headers=headers)).status


def workers(process: Any) -> list[Any]:
    return list(process.pools["model:m"].workers)


def test_RTE_11_own_calls_outweigh_a_report_that_is_seconds_old():
    async def body():
        held = Held()
        async with (
            Upstream(held) as one,
            Upstream(held) as two,
            Upstream(held) as three,
            gateway(yaml_for(one, two, three, plugins=TAIL)) as process,
        ):
            now = process.service.clock.now
            for worker, waiting in zip(workers(process), (0, 1, 1), strict=True):
                worker.standing.running, worker.standing.waiting, worker.standing.sampled = 0, waiting, now
            asks = [asyncio.create_task(ask(process)) for _ in range(60)]
            upstreams = (one, two, three)
            while sum(len(upstream.requests) for upstream in upstreams) < 60:
                await asyncio.sleep(0.002)
            counts = [len(upstream.requests) for upstream in upstreams]
            held.free.set()
            assert await asyncio.gather(*asks) == [200] * 60
            assert min(counts) >= 12, counts

    run(body())


def test_RTE_11_a_report_that_is_too_old_is_no_report():
    """The load of a worker that nobody hears of is unknown: not idle, and not what it said last."""

    async def body():
        held = Held()
        async with (
            Upstream(held) as one,
            Upstream(held) as two,
            Upstream(held) as three,
            gateway(yaml_for(one, two, three, plugins=TAIL)) as process,
        ):
            held.free.set()
            silent, *others = workers(process)
            now = process.service.clock.now
            for worker in (silent, *others):
                worker.standing.running, worker.standing.waiting, worker.standing.sampled = 30, 9, now
            for _ in range(10):
                assert await ask(process) == 200
            silent.standing.forget_load()
            for worker in others:
                worker.standing.running, worker.standing.waiting, worker.standing.sampled = 0, 0, now + 0.1
            before = len(one.requests)
            for _ in range(30):
                assert await ask(process) == 200
            assert len(one.requests) - before <= 15, "what is unknown is not idle"

    run(body())


@pytest.mark.parametrize(
    "token", ["http://127.0.0.1:1", "10.0.0.1:8000", "model:other", "../../x", "a" * 4000, "\u00e9", "0", "x,y"]
)
def test_RTE_14_a_session_cannot_name_a_worker(token: str):
    """It only picks among the pool's: an address in it leads nowhere but there."""

    async def body():
        async with (
            Upstream(json_answer(chat_answer("ok"))) as mine,
            Upstream(json_answer(chat_answer("ok"))) as other,
        ):
            models = f"{{m: {{workers: ['{mine.url}']}}, other: {{workers: ['{other.url}']}}}}"
            yaml = f"listen: [127.0.0.1:0]\nmodels: {models}\nplugins: {TAIL}\n"
            async with gateway(yaml) as process:
                for session in (token, other.url, mine.url):
                    assert await ask(process, session) == 200
                assert await ask(process, body={**CHAT, "user": other.url, "prompt_cache_key": token}) == 200
            assert len(mine.requests) == 4
            assert not other.requests

    run(body())


def test_RTE_14_a_million_sessions_need_no_more_memory_than_ten():
    familiar = Familiar()
    familiar.visit(1, 1000.0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for key in range(1_000_000):
            familiar.visit(key, 1000.0)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4096
    assert familiar.met(999_999, 1000.0)


def test_RTE_14_many_sessions_leave_nothing_behind():
    async def body():
        answer = json_answer(chat_answer("ok"))
        async with (
            Upstream(answer) as one,
            Upstream(answer) as two,
            gateway(yaml_for(one, two, plugins=TAIL)) as process,
            RawClient(process.doors[0].shown) as client,
        ):

            async def asked(numbers: range) -> None:
                for number in numbers:
                    reply = await client.post(PATH, CHAT, headers={"x-session-id": f"session-{number}"})
                    assert reply.status == 200

            await asked(range(200))
            one.requests.clear()
            two.requests.clear()
            assert [worker.inflight for worker in workers(process)] == [0, 0]
            plugin = process.service.chain.pipeline.links[0].plugin
            assert plugin.lessons.backlog == 0
            assert len(plugin.lessons._grounds) == 1
            assert [len(worker.learnt) for worker in workers(process)] == [1, 1]

    run(body())


def test_RTE_14_a_session_whose_worker_dies_moves_on_and_stays():
    async def body():
        answer = json_answer(chat_answer("ok"))
        async with (
            Upstream(answer) as one,
            Upstream(answer) as two,
            Upstream(answer) as three,
            gateway(yaml_for(one, two, three, plugins=TAIL)) as process,
        ):
            upstreams = [one, two, three]
            for _ in range(6):
                assert await ask(process, "s") == 200
            home = max(upstreams, key=lambda upstream: len(upstream.requests))
            assert len(home.requests) >= 4
            home.refuse()
            for connection in home.connections:
                await connection.end()
            asked = len(home.requests)
            for _ in range(8):
                assert await ask(process, "s") == 200
            assert len(home.requests) == asked
            heir = max((other for other in upstreams if other is not home), key=lambda other: len(other.requests))
            assert len(heir.requests) >= 4

    run(body())


def test_RTE_14_one_session_with_200_calls_at_once_spills():
    async def body():
        held = Held()
        async with (
            Upstream(held) as one,
            Upstream(held) as two,
            Upstream(held) as three,
            Upstream(held) as four,
            gateway(yaml_for(one, two, three, four, plugins=TAIL)) as process,
        ):
            upstreams = (one, two, three, four)
            asks = [asyncio.create_task(ask(process, "s")) for _ in range(200)]
            while sum(len(upstream.requests) for upstream in upstreams) < 200:
                await asyncio.sleep(0.002)
            counts = [len(upstream.requests) for upstream in upstreams]
            held.free.set()
            assert await asyncio.gather(*asks) == [200] * 200
            assert max(counts) <= 1.25 * 50 + 4, counts
            assert min(counts) >= 25, counts

    run(body())
