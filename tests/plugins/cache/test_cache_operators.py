"""What operators throw away, and what is given where no worker can."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import pytest
from cached import COLD, ask, cache
from fakes import PATH, chat_answer, json_answer, run
from tailrace.plugins.cache import Cache
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import Bench, entry_of


async def question(bench: Bench, what: str, **fields: str) -> dict[str, Any]:
    plugin: Any = bench.plugin
    return dict(await plugin.asked(bench.process.service.chain, what, fields))


def test_operators_may_throw_answers_away() -> None:
    async def body() -> None:
        from cases.tenants import Tenants

        async with cache(before=[entry_of(Tenants)]) as (bench, _):
            red, blue = {"x-tenant": "red"}, {"x-tenant": "blue"}
            for who in (red, blue, {}):
                await ask(bench, headers=who)
                await ask(bench, {**COLD, "max_tokens": 5}, headers=who)
            assert (await question(bench, "stats"))["entries"] == 6
            assert await question(bench, "purge", tenant="red", model="other") == {"purged": 0}
            assert await question(bench, "purge", tenant="red", model="m") == {"purged": 2}
            assert [await ask(bench, headers=who) for who in (red, blue)] == ["miss", "hit"]
            assert await question(bench, "purge", prefix="=blue/m/chat/") == {"purged": 2}
            assert await question(bench, "purge") == {"purged": 3}
            assert (await question(bench, "stats"))["bytes"] == 0

    run(body())


def test_what_was_asked_before_a_purge_is_not_kept_after_it() -> None:
    async def body() -> None:
        gate = asyncio.Event()

        async def late(conn: Any, request: Any) -> None:
            await gate.wait()
            await conn.send(json_answer(chat_answer("old")))

        async with plugin_bench(Cache, {}, answer=late) as bench:
            asking = asyncio.ensure_future(bench.post(PATH, COLD))
            await bench.upstream.asked()
            await question(bench, "purge")
            gate.set()
            await asking
            assert await ask(bench) == "miss"

    run(body())


@pytest.mark.parametrize("fields", [{"tenant": 3}, {"user": "x"}, {"tenant": "a", "scope": "b"}])
def test_a_purge_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    from tailrace.proxy.control import Refused

    async def body() -> None:
        async with cache() as (bench, _):
            with pytest.raises(Refused):
                await question(bench, "purge", **fields)

    run(body())


def test_an_answer_of_another_model_is_not_kept() -> None:
    async def body() -> None:
        from tailrace.plugins.fallback import Fallback

        async def fails(conn: Any, request: Any) -> None:
            if request.json()["model"] == "m":
                await conn.send(json_answer({"error": {"message": "broken"}}, 500))
            else:
                await conn.send(json_answer(chat_answer("of another model")))

        async with plugin_bench(
            Cache, {}, answer=fails, before=[entry_of(Fallback, {"to": [{"model": "n"}]})]
        ) as bench:
            models = dict.fromkeys(("m", "n"), bench.process.settings.models["m"])
            await bench.process.load(dataclasses.replace(bench.process.settings, models=models))
            for _ in range(2):
                answer = await bench.post(PATH, COLD)
                assert answer.status == 200
                assert answer.header("x-tailrace-cache") == "miss"
            assert answer.header("x-tailrace-fallback") == "model=n"

    run(body())


def test_an_old_answer_is_better_than_none() -> None:
    async def body() -> None:
        from tailrace.plugins.fallback import Fallback

        asked = 0

        async def once(conn: Any, request: Any) -> None:
            nonlocal asked
            asked += 1
            await conn.send(json_answer(chat_answer("old")) if asked == 1 else json_answer({"error": {}}, 503))

        before = [entry_of(Fallback, {"to": [{"cached": True}]})]
        async with plugin_bench(Cache, {"ttl": "1s", "stale": "1h"}, answer=once, before=before) as bench:
            assert await ask(bench) == "miss"
            shelf = bench.plugin._kept._shelf  # type: ignore[attr-defined]
            later = time.time() + 60
            shelf._now = lambda: later
            answer = await bench.post(PATH, COLD)
            assert answer.status == 200
            assert answer.header("x-tailrace-fallback") == "cached"
            assert answer.header("x-tailrace-cache") == "hit"
            assert answer.json()["choices"][0]["message"]["content"] == "old"
            shelf._now = lambda: later + 7200
            assert (await bench.post(PATH, COLD)).status == 503

    run(body())
