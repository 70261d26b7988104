"""How far anybody who shares an answer may lag behind, and how long others join it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import orjson
from fakes import PATH, RawClient, chat_chunk, run
from sharing import LAST, PIECES, ROLE, STREAM, WHOLE, Shares, Worker, sharing, waits
from tailrace.proxy.testing import plugin_bench


async def taken(client: RawClient) -> int:
    """How many bytes of an answer come until its end."""
    count, last = 0, b""
    while not last.endswith(b"0\r\n\r\n"):
        some = await client.read_some()
        assert some
        count += len(some)
        last = (last + some)[-8:]
    return count


def test_a_slow_leader_holds_nobody_back_up_to_the_limit() -> None:
    many = [chat_chunk("x" * 8000) for _ in range(3000)]

    async def body() -> None:
        # More than what kernels take in between: the leader reads nothing until the other one has all of it.
        async with sharing([ROLE, *many, *LAST], limit=64 << 20) as (_, clients):
            leader, follower = await clients.begin(), await clients.begin()
            assert await taken(follower) > 24_000_000
            assert await taken(leader) > 24_000_000

    run(body())


def test_who_lags_behind_too_far_is_cut_and_others_are_not() -> None:
    many = [chat_chunk("x" * 1000) for _ in range(20000)]

    async def body() -> None:
        worker = Worker()
        async with sharing(worker, limit=1 << 18) as (bench, clients):
            leader, idle = await clients.begin(), await clients.begin()
            await waits(bench, 1)
            sending = asyncio.ensure_future(worker.tell(ROLE, *many, *LAST, end=True))
            answer = await leader.read_answer()
            assert answer.complete
            assert answer.body.count(b"x" * 1000) == len(many)
            await sending
            assert b"[DONE]" not in await idle.read_until_close()

    run(body())


def test_nobody_joins_what_has_become_too_long() -> None:
    async def body() -> None:
        worker = Worker()
        async with sharing(worker, limit=2000) as (bench, clients):
            leader = await clients.begin()
            await worker.tell(ROLE, *PIECES)
            await leader.read_until(b"piece 19")
            other = await clients.begin()
            await worker.tell(*WHOLE, end=True, of=1)
            await worker.tell(*LAST, end=True, of=0)
            assert (await other.read_answer()).body == b"".join(WHOLE)
            assert b"[DONE]" in await leader.read_until(b"0\r\n\r\n")
            assert len(bench.upstream.requests) == 2

    run(body())


def test_heartbeats_reach_those_who_wait() -> None:
    async def body() -> None:
        worker = Worker()
        async with plugin_bench(Shares, {}, answer=worker, settings={"heartbeat": "50ms"}) as bench:
            async with RawClient(bench.url) as leader, RawClient(bench.url) as follower:
                for client in (leader, follower):
                    await client.request("POST", PATH, orjson.dumps(STREAM))
                await waits(bench, 1)
                await follower.read_until(b": heartbeat")
                await worker.tell(*WHOLE, end=True)
                assert b"[DONE]" in await follower.read_until(b"0\r\n\r\n")

    run(body())


def test_a_gateway_that_ends_takes_no_leader_for_its_client() -> None:
    async def body() -> None:
        worker = Worker()
        async with AsyncExitStack() as clients:
            async with plugin_bench(Shares, {}, answer=worker) as bench:
                follower = await clients.enter_async_context(RawClient(bench.url))
                async with RawClient(bench.url) as leader:
                    await leader.request("POST", PATH, orjson.dumps(STREAM))
                    await bench.upstream.asked()
                    await follower.request("POST", PATH, orjson.dumps(STREAM))
                    await waits(bench, 1)
                await worker.tell(ROLE, PIECES[0])
                await follower.read_until(b"piece 0")
            assert not bench.process.service.active

    run(body())
