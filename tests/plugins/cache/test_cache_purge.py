"""Throwing answers away while calls are under way: what was asked before is nothing for those who ask after it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cached import COLD, ask
from fakes import chat_answer, json_answer, run
from tailrace.plugins.cache import Cache
from tailrace.proxy.control import Refused
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import Bench
from test_cache_store import gateways


class Late:
    """A worker that answers when it is let."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def __call__(self, conn: Any, request: Any) -> None:
        await self.gate.wait()
        await conn.send(json_answer(chat_answer("old")))


async def purge(bench: Bench) -> Any:
    chain = bench.process.service.chain
    plugin = next(link.plugin for link in chain.pipeline.links if isinstance(link.plugin, Cache))
    return await plugin.asked(chain, "purge", {})


def test_a_call_from_before_a_reload_leaves_nothing_behind_a_purge() -> None:
    async def body() -> None:
        late = Late()
        async with plugin_bench(Cache, {}, answer=late) as bench:
            before = asyncio.ensure_future(ask(bench))
            await bench.upstream.asked()
            await bench.process.load(bench.process.settings)
            await purge(bench)
            late.gate.set()
            assert await before == "miss"
            assert await ask(bench) == "miss"

    run(body())


def test_nobody_follows_what_was_asked_before_a_purge() -> None:
    async def body() -> None:
        late = Late()
        async with plugin_bench(Cache, {}, answer=late) as bench:
            asking = [asyncio.ensure_future(ask(bench))]
            await bench.upstream.asked()
            await purge(bench)
            asking.append(asyncio.ensure_future(ask(bench)))
            await bench.upstream.asked(2)
            late.gate.set()
            assert [await each for each in asking] == ["miss", "miss"]

    run(body())


def held_up(bench: Bench) -> tuple[asyncio.Event, asyncio.Event]:
    """Have the next writing to the store wait: it has begun, it may go on."""
    plugin: Any = bench.plugin
    cache = plugin._kept.remote._cache
    begun, go = asyncio.Event(), asyncio.Event()
    real = cache.set

    async def late(*args: Any, **more: Any) -> Any:
        begun.set()
        await go.wait()
        return await real(*args, **more)

    cache.set = late
    return begun, go


async def entries(bench: Bench) -> int:
    plugin: Any = bench.plugin
    async with plugin._kept.remote._writing:  # behind what is being written
        found = await plugin.asked(bench.process.service.chain, "stats", {})
    return int(found["store_entries"])


def test_what_is_on_its_way_to_a_store_goes_too(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path, 1) as (_, (one,)):
            begun, go = held_up(one)
            await ask(one)
            await begun.wait()
            purging = asyncio.ensure_future(purge(one))
            await asyncio.sleep(0.02)
            go.set()
            assert await purging == {"store_purged": 1}
            assert await entries(one) == 0

    run(body())


def test_what_another_host_has_on_its_way_goes_too_and_what_it_asks_later_stays(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path) as (_, (one, other)):
            begun, go = held_up(other)
            await ask(other)
            await begun.wait()
            await purge(one)
            go.set()
            assert await entries(other) == 0
            await ask(other, {**COLD, "max_tokens": 5})
            async with asyncio.timeout(5):
                while await entries(other) != 1:
                    await asyncio.sleep(0.005)

    run(body())


def test_a_store_that_dies_meanwhile_is_told_of(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path, 1) as (_, (one,)):
            await ask(one, COLD)
            while not await entries(one):
                await asyncio.sleep(0.005)
            plugin: Any = one.plugin

            async def gone(*keys: bytes) -> int:
                raise ConnectionError

            plugin._kept.remote._cache.client.unlink = gone
            with pytest.raises(Refused):
                await purge(one)

    run(body())
