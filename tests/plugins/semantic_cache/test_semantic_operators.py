"""What operators throw away, what a reload leaves, and the company of the exact cache."""

from __future__ import annotations

import asyncio

import pytest
from fakes import chat_answer, json_answer, run
from remembering import LIVE, SHADOW, answering, asking
from tailrace.plugins.cache import Cache
from tailrace.plugins.semantic_cache import SemanticCache
from tailrace.proxy.control import Refused
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import entry_of

FIRST = "How do I reset my password?"
AGAIN = "Please tell me how I can reset my password"


async def question(asks, what, **fields):
    return await asks.plugin.asked(asks.bench.process.service.chain, what, fields)


def test_operators_may_throw_answers_away():
    async def body():
        async with asking() as asks:
            for who in ("red", "blue", None):
                await asks.ask(FIRST, who=who)
            assert (await question(asks, "stats"))["entries"] == 3
            assert await question(asks, "purge", tenant="red", model="other") == {"purged": 0}
            assert await question(asks, "purge", tenant="red", model="m") == {"purged": 1}
            assert [await asks.told(AGAIN, who=who) for who in ("red", "blue")] == ["miss", "hit"]
            assert await question(asks, "purge", domain="faq") == {"purged": 3}
            assert await question(asks, "stats") == {"entries": 0, "bytes": 0}
            with pytest.raises(Refused):
                await question(asks, "purge", prefix="x")
            with pytest.raises(Refused):
                await question(asks, "burn")

    run(body())


def test_keys_without_a_tenant_share_nothing():
    async def body():
        async with asking() as asks:
            callers = ("ann/none", "bob/none", None, "ann")
            assert [await asks.told(FIRST, who=who) for who in callers] == ["miss"] * 4
            assert [await asks.told(AGAIN, who=who) for who in callers] == ["hit"] * 4
            assert asks.asked == 4

    run(body())


@pytest.mark.parametrize("question", [FIRST, AGAIN])
def test_an_answer_may_be_too_old_for_a_client(question):
    async def body():
        async with asking() as asks:
            await asks.ask(FIRST)
            assert await asks.told(question, headers={"cache-control": "max-age=60"}) == "hit"
            await asyncio.sleep(0.002)
            assert await asks.told(question, headers={"cache-control": "max-age=0"}) == "miss"

    run(body())


def test_what_was_asked_before_a_purge_is_not_kept_after_it():
    async def body():
        gate = asyncio.Event()

        async def late(conn, request):
            late.seen.append(request)
            await gate.wait()
            await conn.send(json_answer(chat_answer("old")))

        late.seen = []
        async with asking(script=late) as asks:
            waiting = asyncio.ensure_future(asks.ask(FIRST))
            await asks.bench.upstream.asked()
            await question(asks, "purge")
            gate.set()
            await waiting
            assert await asks.told(AGAIN) == "miss"

    run(body())


def test_a_call_from_before_a_reload_leaves_nothing_behind_a_purge():
    async def body():
        gate = asyncio.Event()

        async def late(conn, request):
            late.seen.append(request)
            await gate.wait()
            await conn.send(json_answer(chat_answer("old")))

        late.seen = []
        async with asking(script=late) as asks:
            waiting = asyncio.ensure_future(asks.ask(FIRST))
            await asks.bench.upstream.asked()
            process = asks.bench.process
            await process.load(process.settings)
            chain = process.service.chain
            await chain.pipeline.links[-1].plugin.asked(chain, "purge", {})
            gate.set()
            await waiting
            assert await asks.told(AGAIN) == "miss"

    run(body())


def test_what_is_remembered_outlives_a_reload():
    async def body():
        for config, state in ((LIVE, "miss"), (LIVE, "hit"), (SHADOW, "shadow")):
            async with asking(config) as asks:
                assert await asks.told(FIRST) == state

    run(body())


def test_the_exact_cache_goes_first_and_takes_nothing_from_the_other():
    async def body():
        script = answering()
        before = [entry_of(Cache)]
        async with plugin_bench(SemanticCache, LIVE, answer=script, before=before) as bench:

            async def ask(text):
                request = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0}
                answer = await bench.post("/v1/chat/completions", request)
                told = [answer.header(f"x-tailrace-{name}") for name in ("cache", "semantic-cache")]
                while bench.plugin._storing._waiting:
                    await asyncio.sleep(0.001)
                return [value and value.partition(";")[0] for value in told]

            assert await ask(FIRST) == ["miss", "miss"]
            assert await ask(FIRST) == ["hit", None]
            assert await ask(AGAIN) == ["miss", "hit"]
            # What came from memory is not kept as what a worker said to these words.
            assert await ask(AGAIN) == ["miss", "hit"]
            assert len(script.seen) == 1

    run(body())


def test_followers_of_a_call_that_is_answered_from_memory_have_its_answer_too():
    async def body():
        script = answering()
        async with plugin_bench(SemanticCache, LIVE, answer=script, before=[entry_of(Cache)]) as bench:

            async def ask(text, **more):
                request = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}
                return await bench.post("/v1/chat/completions", request)

            await ask(FIRST)
            while bench.plugin._storing._waiting:
                await asyncio.sleep(0.001)
            answers = await asyncio.gather(*[ask(AGAIN, stream=bool(number % 2)) for number in range(6)])
            assert [answer.status for answer in answers] == [200] * 6
            assert len(script.seen) == 1

    run(body())
