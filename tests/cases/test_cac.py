"""The response cache, over sockets: whose answers are given to whom, which are kept, and what a crowd costs."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from fakes import RawClient, chat_answer, chat_chunk, event, json_answer, sse_answer, sse_head
from fakes import run as run_

from cases.scene import CHAT, DONE, FINISH, ROLE, STREAM, USAGE, framed, scene

CACHE = "[cases.tenants:Tenants, cases.witness:Witness, cache]"
COLD = {**CHAT, "temperature": 0}
COLD_STREAM = {**STREAM, "temperature": 0}
WHOLE = sse_answer([ROLE, chat_chunk("whole"), FINISH, USAGE, DONE])
FIRST, SECOND = json_answer(chat_answer("first")), json_answer(chat_answer("second"))


def run(main):
    return run_(main, limit=30)


def told(answer):
    return answer.header("x-tailrace-cache")


def text_of(answer):
    return answer.json()["choices"][0]["message"]["content"]


def by(tenant):
    return {"x-tenant": tenant}


def test_CAC_01_one_tenants_answer_is_nothing_for_another():
    async def body():
        async with scene(FIRST, SECOND, plugins=CACHE) as s:
            mine = await s.ask(COLD, headers=by("red"))
            theirs = await s.ask(COLD, headers=by("blue"))
            assert (told(mine), text_of(mine)) == ("miss", "first")
            assert (told(theirs), text_of(theirs)) == ("miss", "second")
            assert theirs.header("age") is None
            again = await s.ask(COLD, headers=by("red"))
            assert (told(again), text_of(again)) == ("hit", "first")
            assert again.header("age") == "0"

    run(body())


@pytest.mark.parametrize("forged", [{"x-tenant": ""}, {}, {"x-tailrace-tenant": "red"}, {"x-tailrace-scope": "red"}])
def test_CAC_01_no_header_leads_to_anothers_answers(forged):
    async def body():
        async with scene(FIRST, SECOND, plugins=CACHE) as s:
            await s.ask(COLD, headers=by("red"))
            assert told(await s.ask(COLD, headers={**forged, "x-tailrace-cache": "on"})) == "miss"

    run(body())


def test_CAC_01_nobody_follows_another_tenants_answer():
    async def body():
        gate = asyncio.Event()

        async def late(conn, request):
            await gate.wait()
            await conn.send(json_answer(chat_answer("one for each")))

        async with scene(late, plugins=CACHE) as s:
            asking = [asyncio.ensure_future(s.ask(COLD, headers=by(tenant))) for tenant in ("red", "blue")]
            await s.upstream.asked(2)
            gate.set()
            assert [told(await each) for each in asking] == ["miss", "miss"]

    run(body())


def test_CAC_01_tenants_share_where_the_operator_says_so():
    async def body():
        shared = "[cases.tenants:Tenants, cases.witness:Witness, cache: {scope: house}]"
        async with scene(FIRST, SECOND, plugins=shared) as s:
            await s.ask(COLD, headers=by("red"))
            assert told(await s.ask(COLD, headers=by("blue"))) == "hit"
            # The name of a shared scope is that of no tenant.
            assert len(s.upstream.requests) == 1

    run(body())


UNFINISHED = {**chat_answer("one"), "choices": [*chat_answer("one")["choices"], {**chat_answer("two")["choices"][0]}]}
UNFINISHED["choices"][1] |= {"index": 1, "finish_reason": None}


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (COLD, {**chat_answer("cut"), "choices": [{**chat_answer("cut")["choices"][0], "finish_reason": "length"}]}),
        ({**COLD, "n": 2}, UNFINISHED),
        ({**COLD, "n": 2}, chat_answer("only one")),
        (COLD_STREAM, [ROLE, chat_chunk("cut"), chat_chunk(finish="length"), DONE]),
        (COLD_STREAM, [ROLE, chat_chunk("cut"), DONE]),
        ({**COLD_STREAM, "n": 2}, [ROLE, chat_chunk("a"), chat_chunk("b", index=1), chat_chunk(finish="stop"), DONE]),
        (COLD_STREAM, [ROLE, chat_chunk("cut"), event({"error": {"message": "broken", "code": 500}})]),
    ],
)
def test_CAC_03_what_is_not_whole_is_not_kept(request_, answer):
    async def body():
        given = sse_answer(answer) if isinstance(answer, list) else json_answer(answer)
        good = WHOLE if request_ is not COLD else json_answer(chat_answer("whole"))
        async with scene(given, good, plugins=CACHE) as s:
            await s.ask(request_)
            again = await s.ask(request_)
            assert told(again) == "miss"
            assert b"whole" in again.body

    run(body())


def test_CAC_03_what_the_worker_broke_off_is_not_kept():
    async def cut(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("cut")]))
        conn.rst()

    async def body():
        async with scene(cut, WHOLE, plugins=CACHE) as s:
            assert b"cut" in (await s.ask(COLD_STREAM)).body
            assert told(await s.ask(COLD_STREAM)) == "miss"
            assert told(await s.ask(COLD_STREAM)) == "hit"

    run(body())


def test_CAC_03_what_the_client_left_is_not_kept():
    async def slow(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("left")]))
        await conn.wait_closed()

    async def body():
        async with scene(slow, WHOLE, plugins=CACHE) as s:
            client = await s.begin(COLD_STREAM)
            await client.read_until(b"left")
            client.rst()
            await s.outcome()
            assert told(await s.ask(COLD_STREAM)) == "miss"

    run(body())


def test_only_if_cached_asks_no_worker():
    async def body():
        async with scene(FIRST, plugins=CACHE) as s:
            only = {"cache-control": "only-if-cached"}
            missing = await s.ask(COLD, headers=only)
            assert missing.status == 504
            assert missing.json()["error"]["code"] == "not_cached"
            assert not s.upstream.requests
            await s.ask(COLD)
            assert told(await s.ask(COLD, headers=only)) == "hit"

    run(body())


def test_no_cache_is_answered_anew_and_no_store_leaves_nothing():
    async def body():
        async with scene(FIRST, SECOND, plugins=CACHE) as s:
            assert told(await s.ask(COLD, headers={"cache-control": "no-store"})) == "bypass"
            assert text_of(await s.ask(COLD)) == "second"
            assert told(await s.ask(COLD, headers={"cache-control": "no-cache"})) == "miss"
            assert told(await s.ask(COLD)) == "hit"
            assert len(s.upstream.requests) == 3

    run(body())


def test_pipelined_repeats_are_answered_in_order():
    async def body():
        async with scene(FIRST, plugins=CACHE) as s, RawClient(s.url) as client:
            for _ in range(3):
                await client.request("POST", "/v1/chat/completions", orjson.dumps(COLD))
            assert [told(await client.read_answer()) for _ in range(3)] == ["miss", "hit", "hit"]

    run(body())
