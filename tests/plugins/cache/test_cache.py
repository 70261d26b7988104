"""The `cache` plugin: what is kept how long, what a collision comes to, and what operators see and throw away."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import pytest
from cached import COLD, STREAM, ask, cache, numbers
from fakes import CHAT, PATH, chat_answer, json_answer, run
from tailrace.plugins.cache import Cache, desk
from tailrace.plugins.guard import Guard
from tailrace.plugins.redact import Redact
from tailrace.proxy.pipeline import ChainError, Link, Pipeline
from tailrace.proxy.settings import ModelSettings, PoolSettings
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import entry_of


def test_what_is_kept_is_counted() -> None:
    async def body() -> None:
        async with cache() as (bench, _):
            assert [await ask(bench) for _ in range(3)] == ["miss", "hit", "hit"]
            assert await ask(bench, CHAT) == "bypass"
            told = numbers(bench)
            assert told["answers_total", "hit"] == 2
            assert told["answers_total", "miss"] == 1
            assert told["bypasses_total", "drawn"] == 1
            assert told["stored_total",] == told["entries",] == 1
            assert 200 < told["bytes",] < 2000

    run(body())


def test_a_hit_has_the_usage_of_its_answer_and_says_where_it_comes_from() -> None:
    async def body() -> None:
        async with cache() as (bench, _):
            for _ in range(2):
                await ask(bench)
            call, outcome = bench.calls[1]
            assert call.source == "cache"
            assert (outcome.usage.prompt, outcome.usage.completion) == (3, 2)  # type: ignore[union-attr]

    run(body())


def test_answers_have_an_end_and_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()

    async def body() -> None:
        async with cache({"ttl": "1m"}) as (bench, _):
            shelf = bench.plugin._kept._shelf  # type: ignore[attr-defined]
            assert await ask(bench) == "miss"
            monkeypatch.setattr(time, "time", lambda: now + 30)
            shelf._now = time.time
            answer = await bench.post(PATH, COLD)
            assert answer.header("x-tailrace-cache") == "hit"
            assert answer.header("age") in ("29", "30")
            shelf._now = lambda: now + 62
            assert await ask(bench) == "miss"

    run(body())


def test_what_is_too_large_is_not_kept_and_memory_is_bounded() -> None:
    async def body() -> None:
        async with cache({"largest": "200B"}) as (bench, _):
            assert [await ask(bench) for _ in range(2)] == ["miss", "miss"]
            assert numbers(bench)["unfit_total",] == 2
        async with cache({"memory": "2KiB"}) as (bench, _):
            for number in range(9):
                await ask(bench, {**COLD, "max_tokens": number + 1})
            told = numbers(bench)
            assert told["bytes",] <= 2048
            assert told["evicted_total",] >= 5

    run(body())


def test_a_collision_of_keys_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "key_of", lambda form: b"all the same")

    async def body() -> None:
        async with cache() as (bench, worker):
            assert await ask(bench) == "miss"
            assert await ask(bench, {**COLD, "max_tokens": 5}) == "miss"
            assert await ask(bench, {**COLD, "max_tokens": 5}) == "hit"
            assert worker.asked == 2

    run(body())


def test_a_collision_of_keys_makes_nobody_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "key_of", lambda form: b"all the same")

    async def body() -> None:
        gate = asyncio.Event()

        async def late(conn: Any, request: Any) -> None:
            await gate.wait()
            await conn.send(json_answer(chat_answer(str(request.json()["max_tokens"]))))

        async with plugin_bench(Cache, {}, answer=late) as bench:
            asking = [asyncio.ensure_future(bench.post(PATH, {**COLD, "max_tokens": n})) for n in (5, 6)]
            await bench.upstream.asked(2)
            gate.set()
            assert [(await each).json()["choices"][0]["message"]["content"] for each in asking] == ["5", "6"]

    run(body())


def test_what_is_kept_outlives_a_reload() -> None:
    async def body() -> None:
        async with cache() as (bench, _):
            assert await ask(bench) == "miss"
            await bench.process.load(bench.process.settings)
            assert await ask(bench) == "hit"

    run(body())


def test_a_paced_stream_comes_piece_by_piece() -> None:
    async def body() -> None:
        async with cache({"pace": 100}) as (bench, _):
            await ask(bench, STREAM)
            answer = await bench.post(PATH, STREAM)
            assert answer.header("x-tailrace-cache") == "hit"
            assert len(answer.chunks) == len(answer.events) > 3
            assert answer.complete

    run(body())


def test_the_client_may_leave_a_paced_stream() -> None:
    async def body() -> None:
        from fakes import RawClient, until
        from orjson import dumps

        async with cache({"pace": 1}) as (bench, _):
            await ask(bench, STREAM)
            async with RawClient(bench.url) as client:
                await client.request("POST", PATH, dumps(STREAM))
                await client.read_until(b"assistant")
            await until(lambda: len(bench.calls) == 2)
            assert bench.calls[1][1].ending == "client_gone"

    run(body())


def test_changes_of_plugins_before_it_count_and_taps_after_it_see_hits() -> None:
    async def body() -> None:
        guard, redact = entry_of(Guard, {"max_tokens": {"cap": 5}}), entry_of(Redact, {"own": {"n": "answer [0-9]"}})
        async with cache(before=[guard, redact]) as (bench, worker):
            assert await ask(bench, {**COLD, "max_tokens": 99}) == "miss"
            assert await ask(bench, {**COLD, "max_tokens": 5}) == "hit"
            answer = await bench.post(PATH, COLD | {"max_tokens": 5})
            assert answer.json()["choices"][0]["message"]["content"] == "[n]"
            assert worker.asked == 1

    run(body())


def test_hits_carry_the_name_that_the_client_used() -> None:
    async def body() -> None:
        async with cache() as (bench, worker):
            settings = bench.process.settings
            pools = {"p": PoolSettings(workers=settings.models["m"].workers)}
            plain, renamed = ModelSettings(pool="p"), ModelSettings(pool="p", served_as="m", rename=True)
            changed = dataclasses.replace(settings, pools=pools, models={"m": plain, "nick": renamed})
            await bench.process.load(changed)
            for name in ("m", "nick"):
                answer = await bench.post(PATH, {**COLD, "model": name})
                assert answer.json()["model"] == name
            assert worker.asked == 1

    run(body())


def test_it_does_not_stand_before_whoever_says_who_calls() -> None:
    from cases.tenants import Tenants

    links = [Link(Cache(Cache.Config()), "cache"), Link(Tenants(Tenants.Config()), "tenants")]
    with pytest.raises(ChainError, match="'cache' goes by Identity, which 'tenants' gives behind it only"):
        Pipeline.of(links)
    Pipeline.of(links[::-1])
    Pipeline.of(links[:1])
