"""Answers in a real Valkey: shared by gateways, and nothing at all where it is slow, dead or full of something else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fakes import CHAT, PATH, chat_answer, json_answer, run, until
from redis.asyncio import Redis
from tailrace.plugins.cache import Cache
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import Bench
from valkeys import Valkey, valkey

COLD = {**CHAT, "temperature": 0}
ANSWER = json_answer(chat_answer("shared"))


@asynccontextmanager
async def gateways(folder: Path, count: int = 2, **settings: Any) -> AsyncIterator[tuple[Valkey, list[Bench]]]:
    async with valkey(folder) as store, AsyncExitStack() as stack:
        config = {"valkey": {"url": store.url, "wait_ms": 200, **settings.pop("store", {})}, **settings}
        benches = [await stack.enter_async_context(plugin_bench(Cache, config, answer=ANSWER)) for _ in range(count)]
        for bench in benches:
            await back(bench)
        yield store, benches


async def back(bench: Bench) -> None:
    plugin: Any = bench.plugin
    await until(lambda: plugin._kept.remote.answers, "the store does not answer")


async def ask(bench: Bench, body: Any = COLD) -> str:
    answer = await bench.post(PATH, body)
    assert answer.status == 200
    return answer.header("x-tailrace-cache") or "?"


async def written(bench: Bench, store: Valkey, count: int = 1) -> None:
    async with Redis.from_url(store.url) as client:
        async with asyncio.timeout(10):
            while await client.dbsize() < count:
                await asyncio.sleep(0.005)


def forget(bench: Bench) -> None:
    """Lose what is on its way to the store."""
    plugin: Any = bench.plugin
    shelf = plugin._kept._shelf
    keys = shelf.keys()
    for key in keys:
        shelf.drop(key)


def number(bench: Bench, *which: str) -> float:
    plugin: Any = bench.plugin
    return next(value for name, labels, value in plugin.metrics() if (name, *labels.values()) == which)


def test_what_one_gateway_keeps_the_other_gives(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path) as (store, (one, other)):
            assert await ask(one) == "miss"
            await written(one, store)
            forget(one)
            assert [await ask(other), await ask(one)] == ["hit", "hit"]
            assert not other.upstream.requests
            async with Redis.from_url(store.url) as client:
                (key,) = await client.keys("*")
                assert key.startswith(b"tailrace-cache:1:/m/chat/")
                assert 3500 < await client.ttl(key) <= 3600

    run(body())


def test_a_dead_store_is_a_miss(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path, 1) as (store, (one,)):
            await store.kill()
            assert [await ask(one, {**COLD, "max_tokens": n}) for n in (1, 2, 3)] == ["miss"] * 3
            assert number(one, "store_errors_total", "read") == 1
            assert number(one, "store_skipped_total") == 2
            assert number(one, "store_up") == 0
            await store.start()
            await back(one)
            await ask(one)
            await written(one, store)
            assert await ask(one) == "hit"

    run(body())


def test_a_store_that_hangs_costs_one_wait_and_no_more(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path, 1, store={"wait_ms": 20}) as (store, (one,)):
            await ask(one)
            await written(one, store)
            await back(one)
            forget(one)
            store.freeze()
            try:
                for _ in range(5):
                    assert await ask(one) == "miss"
                    forget(one)
                assert number(one, "store_errors_total", "read") == 1
                assert number(one, "store_skipped_total") == 4
            finally:
                store.thaw()

    run(body())


def test_a_full_line_drops_and_counts(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path, 1, store={"waiting": 1, "wait_ms": 5}) as (store, (one,)):
            store.freeze()
            try:
                for count in range(5):
                    await ask(one, {**COLD, "max_tokens": count + 1})
                assert number(one, "store_dropped_total") >= 3
            finally:
                store.thaw()

    run(body())


def test_what_is_no_answer_or_for_another_request_is_a_miss(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path, 1) as (store, (one,)):
            await ask(one)
            await written(one, store)
            async with Redis.from_url(store.url) as client:
                (key,) = await client.keys("*")
                good = await client.get(key)
                for poison in (b"", b"poison", good[:-3], good.replace(b"tr1", b"tr0"), b"tr1:" + b"\x98" * 40):
                    await client.set(key, poison)
                    forget(one)
                    assert await ask(one) == "miss"
                    async with asyncio.timeout(10):
                        while await client.get(key) == poison:
                            await asyncio.sleep(0.005)
                await ask(one, {**COLD, "max_tokens": 7})
                await written(one, store, 2)
                (other,) = [name for name in await client.keys("*") if name != key]
                await client.set(key, await client.get(other))
                forget(one)
                assert await ask(one) == "miss"

    run(body())


def test_a_crowd_asks_one_worker_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path, 1) as (_, (one,)):
            answers = await asyncio.gather(*(ask(one) for _ in range(20)))
            assert set(answers) <= {"miss", "follow", "hit"}
            assert len(one.upstream.requests) == 1

    run(body())


def test_purge_and_stats(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateways(tmp_path, 1) as (store, (one,)):
            for count in range(5):
                await ask(one, {**COLD, "max_tokens": count + 1})
            await written(one, store, 5)
            plugin: Any = one.plugin
            chain = one.process.service.chain
            assert await plugin.asked(chain, "stats", {}) == {"store_entries": 5}
            assert await plugin.asked(chain, "purge", {"model": "n"}) == {"store_purged": 0}
            assert await plugin.asked(chain, "purge", {"model": "m", "prefix": "/m/chat/"}) == {"store_purged": 5}

    run(body())
