"""What a crowd that asks the same costs, and what becomes of it when its first one leaves or fails."""

from __future__ import annotations

import asyncio
import time

from fakes import chat_answer, chat_chunk, json_answer, run, sse_answer, sse_head, until

from cases.scene import CHAT, DONE, FINISH, ROLE, STREAM, USAGE, framed, scene

CACHE = "[cases.tenants:Tenants, cases.witness:Witness, cache]"
COLD = {**CHAT, "temperature": 0}
COLD_STREAM = {**STREAM, "temperature": 0}
WHOLE = sse_answer([ROLE, chat_chunk("whole"), FINISH, USAGE, DONE])
FIRST = json_answer(chat_answer("first"))


def told(answer):
    return answer.header("x-tailrace-cache")


def text_of(answer):
    return answer.json()["choices"][0]["message"]["content"]


def test_CAC_07_a_crowd_costs_one_answer():
    async def body():
        gate = asyncio.Event()

        async def late(conn, request):
            await gate.wait()
            await conn.send(FIRST)

        async with scene(late, plugins=CACHE) as s:
            asking = [asyncio.ensure_future(s.ask(COLD)) for _ in range(50)]
            await until(lambda: s.process.service.active == 50)
            gate.set()
            answers = [await each for each in asking]
            assert {text_of(answer) for answer in answers} == {"first"}
            assert sorted(map(told, answers)) == ["follow"] * 49 + ["miss"]
            assert len(s.upstream.requests) == 1
            await s.at_rest()

    run(body())


def test_CAC_07_the_first_client_leaves_then_the_worker_fails():
    async def body():
        gate = asyncio.Event()

        async def fails(conn, request):
            await gate.wait()
            conn.rst()

        good = WHOLE
        async with scene(fails, good, plugins=CACHE) as s:
            first = await s.begin(COLD_STREAM)
            await s.upstream.asked()
            asking = [asyncio.ensure_future(s.ask(COLD_STREAM)) for _ in range(20)]
            await until(lambda: s.process.service.active == 21)
            first.rst()
            await asyncio.sleep(0.02)
            assert not s.upstream.closed_at
            gate.set()
            for each in asking:
                answer = await each
                assert answer.complete
                assert b"whole" in answer.body
            assert len(s.upstream.requests) == 2
            await s.at_rest()

    run(body())


def test_CAC_07_nobody_waits_for_one_leader_after_the_other():
    async def hangs(conn, request):
        await conn.wait_closed()

    async def body():
        async with scene(hangs, plugins=CACHE, more="timeouts: {unary: 0.3}\n") as s:
            began = time.monotonic()
            answers = await asyncio.gather(*[s.ask(COLD) for _ in range(12)])
            assert {answer.status for answer in answers} == {504}
            # Two of those they followed, and their own; each is noticed within a fifth of a second or so.
            assert time.monotonic() - began < 3
            await s.at_rest()

    run(body())


def test_CAC_07_upstream_ends_with_the_last_who_listens():
    async def slow(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("begun")]))
        await conn.wait_closed()

    async def body():
        async with scene(slow, plugins=CACHE) as s:
            clients = [await s.begin(COLD_STREAM)]
            await s.upstream.asked()
            clients.append(await s.begin(COLD_STREAM))
            for client in clients:
                await client.read_until(b"begun")
            clients[0].rst()
            await asyncio.sleep(0.02)
            assert not s.upstream.closed_at
            clients[1].rst()
            await until(lambda: s.upstream.closed_at, "the upstream stays open")
            await s.at_rest()

    run(body())


def test_CAC_09_a_retry_after_a_time_out_begins_anew_and_meets_no_late_answer():
    async def body():
        async def slow(conn, request):
            await conn.wait_closed()

        async with scene(slow, FIRST, plugins=CACHE) as s:
            impatient = await s.begin(COLD)
            await s.upstream.asked()
            impatient.rst()
            await s.outcome()
            again = await s.ask(COLD)
            assert (told(again), text_of(again)) == ("miss", "first")

    run(body())


def test_CAC_09_a_retry_joins_what_others_still_wait_for():
    async def body():
        gate = asyncio.Event()

        async def slow(conn, request):
            await gate.wait()
            await conn.send(FIRST)

        async with scene(slow, plugins=CACHE) as s:
            impatient = await s.begin(COLD)
            await s.upstream.asked()
            other = asyncio.ensure_future(s.ask(COLD))
            await until(lambda: s.process.service.active == 2)
            impatient.rst()
            again = asyncio.ensure_future(s.ask(COLD))
            await until(lambda: s.process.service.active == 3)
            gate.set()
            assert [told(await each) for each in (other, again)] == ["follow", "follow"]
            assert len(s.upstream.requests) == 1

    run(body())
