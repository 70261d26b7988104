"""A call that has shown nothing gives its place up to one of a class that goes first, once, and begins anew."""

from __future__ import annotations

import asyncio

import pytest
from admitted import Held, begin, counted, with_classes
from cases.scene import CHAT, DONE, END, FINISH, ROLE, STREAM, framed, until
from fakes import Connection, Request, chat_chunk, run, sse_head
from tailrace.proxy.outcome import AttemptEnd, Ending


@pytest.mark.parametrize("body", [CHAT, STREAM])
def test_a_call_that_has_shown_nothing_gives_way(body: dict):
    async def main():
        held = Held()
        async with with_classes(held) as s:
            batch = await begin(s, "b", "batch", body)
            await until(lambda: held.seen == ["b"])
            hasty = await begin(s, "i")
            await until(lambda: held.seen == ["b", "i"])
            await until(lambda: held.gone == ["b"], "the worker goes on with it")
            assert counted(s, "preempted_total", **{"class": "batch"}) == 1
            assert counted(s, "waiting", **{"class": "batch"}) == 1
            held.release()
            assert (await hasty.read_answer()).status == 200
            await until(lambda: held.seen == ["b", "i", "b"])
            held.release()
            answer = await batch.read_answer()
            assert answer.status == 200
            assert b'"b"' in answer.body
            await s.at_rest()
            call = next(call for call in s.witness.calls if len(call.tries) == 2)
            assert [attempt.why for attempt in call.tries] == ["first", "requeue"]
            first = call.tries[0]
            assert (first.end, first.fault and first.fault.kind) == (AttemptEnd.CANCELLED, "preempted")
            assert 0 < call.requeued_ns <= call.waited_ns

    run(main())


def test_a_call_that_has_shown_something_keeps_its_place():
    async def main():
        go = asyncio.Event()

        async def begun(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + framed([ROLE, chat_chunk("x")]))
            await go.wait()
            await conn.send(framed([FINISH, DONE]) + END)

        async with with_classes(begun) as s:
            batch = await begin(s, "b", "batch", STREAM)
            await batch.read_until(b'"x"')
            hasty = await begin(s, "i", "interactive", STREAM)
            await until(lambda: counted(s, "waiting", **{"class": "interactive"}) == 1)
            assert counted(s, "preempted_total") == 0
            go.set()
            assert (await hasty.read_answer()).complete
            assert len(s.upstream.requests) == 2

    run(main())


def test_a_call_that_has_effects_keeps_its_place():
    async def main():
        held = Held()
        async with with_classes(held) as s:
            batch = await begin(s, "b", "batch", {**CHAT, "store": True})
            await until(lambda: held.seen == ["b"])
            hasty = await begin(s, "i")
            await until(lambda: counted(s, "waiting", **{"class": "interactive"}) == 1)
            held.release(2)
            for client in (batch, hasty):
                assert (await client.read_answer()).status == 200
            assert held.seen == ["b", "i"]

    run(main())


def test_a_call_gives_way_once():
    async def main():
        held = Held()
        async with with_classes(held) as s:
            batch = await begin(s, "b", "batch")
            await until(lambda: held.seen == ["b"])
            clients = [await begin(s, "i0")]
            await until(lambda: held.seen == ["b", "i0"])
            held.release()
            await until(lambda: held.seen == ["b", "i0", "b"])
            clients.append(await begin(s, "i1"))
            await until(lambda: counted(s, "waiting", **{"class": "interactive"}) == 1)
            held.release(2)
            for client in (batch, *clients):
                assert (await client.read_answer()).status == 200
            assert held.seen == ["b", "i0", "b", "i1"]

    run(main())


def test_who_leaves_after_giving_way_is_gone():
    async def main():
        held = Held()
        async with with_classes(held) as s:
            batch = await begin(s, "b", "batch")
            await until(lambda: held.seen == ["b"])
            hasty = await begin(s, "i")
            await until(lambda: counted(s, "waiting") == 1)
            await batch.close()
            await until(lambda: counted(s, "waiting") == 0)
            held.release()
            assert (await hasty.read_answer()).status == 200
            await s.at_rest()
            assert held.seen == ["b", "i"]
            assert {outcome.ending for outcome in s.witness.outcomes} == {Ending.CLIENT_GONE, Ending.COMPLETED}

    run(main())


def test_who_gave_way_does_not_wait_for_ever():
    async def main():
        held = Held()
        classes = "[{name: interactive, preempts: true}, {name: batch, wait: 80ms}]"
        async with with_classes(held, f"{{capacity: 1, classes: {classes}}}") as s:
            batch = await begin(s, "b", "batch")
            await until(lambda: held.seen == ["b"])
            hasty = await begin(s, "i")
            answer = await batch.read_answer()
            assert (answer.status, answer.json()["error"]["code"]) == (503, "gateway_overloaded")
            assert answer.header("retry-after")
            assert counted(s, "refused_total", **{"class": "batch", "why": "waited"}) == 1
            held.release()
            assert (await hasty.read_answer()).status == 200

    run(main())
