"""Calls at a worker that falls silent: who waits moves where a policy allows it, and stays where none does."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fakes import CHAT, GOOD, PATH, Connection, RawClient, Request, Upstream, chunked, decoded, run, until
from scrape import Scrape
from sidecars import url_of
from tailrace.proxy.fleet import SILENT, SUSPECT
from tailrace.proxy.gateway import running
from tailrace.proxy.watch import watcher
from tailrace.proxy.watch.feed import SIGN_OF_LIFE
from watched import FEED_HEAD, state

BEATING = state(heartbeat=0.1)


class Host(Upstream):
    """A sidecar that sends signs of life as long as it is well, and answers calls only then."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.well = asyncio.Event()
        self.well.set()
        self.calls = 0

    async def _answer(self, conn: Connection, request: Request) -> None:
        if request.method == "GET":
            await self.well.wait()
            await conn.send(FEED_HEAD + chunked(BEATING))
            while True:
                await asyncio.sleep(0.03)
                await self.well.wait()
                await conn.send(chunked(SIGN_OF_LIFE))
        self.calls += 1
        await self.well.wait()
        await conn.send(GOOD)


@asynccontextmanager
async def scene(plugins: str, more: str = "") -> Any:
    async with Host() as one, Host() as two:
        urls = f"'{one.url}', '{two.url}'"
        text = f"listen: [127.0.0.1:0]\nmodels: {{m: {{workers: [{urls}]}}}}\nplugins: {plugins}\n{more}"
        async with running(decoded(text), watching=True) as process:
            workers = list(process.workers())
            await until(lambda: all(worker.standing.seen for worker in workers))
            yield process, workers, one, two


async def waits_at(process: Any, worker: Any, other: Any) -> tuple[RawClient, asyncio.Task[Any]]:
    """A call that is sent to one worker."""
    other.bar("test")
    client = await RawClient.connect(url_of(process))
    asking = asyncio.ensure_future(client.post(PATH, CHAT))
    await until(lambda: worker.inflight and len(worker.connections.busy) == 2)
    other.unbar("test")
    return client, asking


def test_a_call_that_waits_at_a_silent_worker_moves_where_a_policy_names_another_one() -> None:
    async def body() -> None:
        async with scene("[retry: {}, route: {}]") as (process, (first, second), one, two):
            one.well.clear()
            client, asking = await waits_at(process, first, second)
            assert (await asking).status == 200
            assert (one.calls, two.calls) == (1, 1)
            assert SUSPECT in first.bars
            one.well.set()
            await until(lambda: not first.bars)
            await client.close()

    run(body())


def test_without_a_policy_it_stays_and_waits() -> None:
    async def body() -> None:
        async with scene("[route: {}]", "suspect_after: 300ms\n") as (process, (first, second), one, two):
            one.well.clear()
            client, asking = await waits_at(process, first, second)
            await until(lambda: SILENT in first.bars)
            async with RawClient(url_of(process)) as other:
                assert (await other.post(PATH, CHAT)).status == 200
            assert not asking.done()
            one.well.set()
            assert (await asking).status == 200
            assert (one.calls, two.calls) == (1, 1)
            await until(lambda: not first.bars)
            await client.close()

    run(body())


def test_with_nobody_else_it_stays_too() -> None:
    async def body() -> None:
        async with scene("[retry: {}, route: {}]", "suspect_after: 300ms\n") as (process, (first, second), one, _):
            one.well.clear()
            client, asking = await waits_at(process, first, second)
            second.standing.dead = True
            second.changed()
            await until(lambda: SILENT in first.bars)
            assert process.pools["model:m"].eligible == [first]
            assert not asking.done()
            one.well.set()
            assert (await asking).status == 200
            await client.close()

    run(body())


@pytest.mark.parametrize("broken", ["rst", "close"])
def test_a_feed_that_breaks_off_is_a_reason_to_ask_anew_at_once(broken: str) -> None:
    async def body() -> None:
        async with scene("[route: {}]") as (process, (first, _), one, _):
            getattr(next(iter(one.connections)), broken)()
            await until(lambda: one.requests[-1] is not one.requests[0] and not first.bars)
            assert [request.method for request in one.requests] == ["GET", "GET"]
            assert Scrape(process).value("worker_suspected_total", evidence="connection") == 1

    run(body())


def test_a_host_that_refuses_calls_is_suspect_and_then_dead() -> None:
    async def body() -> None:
        async with scene("[route: {}]") as (process, (first, second), one, _):
            one.refuse()
            second.bar("test")
            for conn in list(one.connections):
                conn.rst()
            await until(lambda: SUSPECT in first.bars)
            second.unbar("test")
            for _ in range(4):
                async with RawClient(url_of(process)) as client:
                    assert (await client.post(PATH, CHAT)).status == 200
            await until(lambda: first.standing.dead)
            assert one.calls == 0
            await one.listen_again()
            await until(lambda: first.eligible and not first.bars)

    run(body())


def test_who_is_not_found_once_is_suspect_before_it_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "MISSES", 1 << 30)

    async def body() -> None:
        async with Host() as one:
            one.refuse()
            text = f"listen: [127.0.0.1:0]\nmodels: {{m: {{workers: ['{one.url}']}}}}\n"
            async with running(decoded(text), watching=True) as process:
                (worker,) = process.workers()
                await until(lambda: SUSPECT in worker.bars)
                assert not worker.standing.dead
                await one.listen_again()
                await until(lambda: not worker.bars)

    run(body())
