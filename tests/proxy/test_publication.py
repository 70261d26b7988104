"""One upstream answer for several calls: who gets what, whose leaving ends what, and how far anybody may lag behind."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from fakes import CHAT, GOOD, chat_chunk, event, run, sse_answer, until
from sharing import LAST, PIECES, ROLE, WHOLE, Worker, sharing, waits
from tailrace.proxy.outcome import Ending
from tailrace.proxy.testing.worker import Connection, Request
from tailrace.proxy.unheard import Unheard


@pytest.mark.parametrize("feed", ["whole", "bytes", "joined"])
def test_all_who_ask_meanwhile_get_the_same_events(feed: str) -> None:
    async def body() -> None:
        worker = Worker()
        async with sharing(worker) as (bench, clients):
            leader = await clients.begin()
            await bench.upstream.asked()
            early = await clients.begin()
            await waits(bench, 1)
            await worker.tell(ROLE, *PIECES[:10])
            late = await clients.begin()
            await waits(bench, 2)
            rest = b"".join([*PIECES[10:], *LAST])
            for piece in {"whole": [rest], "bytes": [bytes([b]) for b in rest], "joined": [rest]}[feed]:
                await worker.tell(piece)
            await worker.tell(end=True)
            answers = [await client.read_answer() for client in (leader, early, late)]
            assert [answer.body for answer in answers] == [b"".join(WHOLE)] * 3
            assert all(answer.complete for answer in answers)
            assert len(bench.upstream.requests) == 1

    run(body())


def test_a_unary_answer_is_shared() -> None:
    async def body() -> None:
        gate = asyncio.Event()

        async def script(conn: Connection, request: Request) -> None:
            await gate.wait()
            await conn.send(GOOD)

        async with sharing(script) as (bench, clients):
            leader, follower = await clients.begin(CHAT), await clients.begin(CHAT)
            await waits(bench, 1)
            gate.set()
            first, second = await leader.read_answer(), await follower.read_answer()
            assert first.body == second.body == GOOD.partition(b"\r\n\r\n")[2]
            assert len(bench.upstream.requests) == 1

    run(body())


@pytest.mark.parametrize("begun", [False, True])
def test_the_leader_may_leave_and_others_get_the_whole_answer(begun: bool) -> None:
    async def body() -> None:
        worker = Worker()
        async with sharing(worker) as (bench, clients):
            leader, follower = await clients.begin(), await clients.begin()
            await waits(bench, 1)
            if begun:
                await worker.tell(ROLE, PIECES[0])
                await leader.read_until(b"piece 0")
            leader.rst()
            await until(lambda: len(bench.process.service.connections) == 2 and not worker.connections[0].closed_at)
            await worker.tell(*(WHOLE[2:] if begun else WHOLE), end=True)
            assert (await follower.read_answer()).body == b"".join(WHOLE)
            await until(lambda: len(bench.calls) == 2)
            assert {outcome.ending for _, outcome in bench.calls} == {Ending.COMPLETED}
            await until(lambda: len(bench.process.service.connections) == 1, "the leader's connection stays")

    run(body())


def test_the_leader_of_a_unary_answer_may_leave() -> None:
    async def body() -> None:
        gate = asyncio.Event()

        async def script(conn: Connection, request: Request) -> None:
            await gate.wait()
            await conn.send(GOOD)

        async with sharing(script) as (bench, clients):
            leader, follower = await clients.begin(CHAT), await clients.begin(CHAT)
            await waits(bench, 1)
            leader.rst()
            gate.set()
            assert (await follower.read_answer()).status == 200
            assert len(bench.upstream.requests) == 1

    run(body())


@pytest.mark.parametrize("begun", [False, True])
def test_with_the_last_who_follows_goes_the_upstream(begun: bool) -> None:
    async def body() -> None:
        worker = Worker()
        async with sharing(worker) as (bench, clients):
            leader = await clients.begin()
            followers = [await clients.begin() for _ in range(2)]
            await waits(bench, 2)
            if begun:
                await worker.tell(ROLE, PIECES[0])
                for client in (leader, *followers):
                    await client.read_until(b"piece 0")
            leader.rst()
            followers[0].rst()
            await waits(bench, 1)
            assert not worker.connections[0].closed_at
            left_at = time.monotonic()
            followers[1].rst()
            await until(lambda: worker.connections[0].closed_at, "the upstream stays")
            assert worker.connections[0].closed_at - left_at < 5  # type: ignore[operator]
            await until(lambda: len(bench.calls) == 3)
            assert {outcome.ending for _, outcome in bench.calls} == {Ending.CLIENT_GONE}

    run(body())


def test_nobody_joins_what_the_last_one_has_just_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        worker = Worker()
        async with sharing(worker) as (bench, clients):
            leader, follower = await clients.begin(), await clients.begin()
            await waits(bench, 1)
            await worker.tell(ROLE, PIECES[0])
            for client in (leader, follower):
                await client.read_until(b"piece 0")
            leader.rst()
            connections = bench.process.service.connections
            await until(lambda: any(isinstance(each.transport, Unheard) for each in connections))
            shares: Any = bench.plugin
            (publication,) = shares.led.values()
            end, seen = Unheard.abort, []

            def abort(gone: Unheard) -> None:
                end(gone)
                seen.append(publication.open)

            monkeypatch.setattr(Unheard, "abort", abort)
            follower.rst()
            await until(lambda: len(bench.calls) == 2)
            assert seen[0] is False

    run(body())


def test_a_leader_with_nobody_behind_it_is_ended_as_ever() -> None:
    async def body() -> None:
        worker = Worker()
        async with sharing(worker) as (bench, clients):
            leader = await clients.begin()
            await bench.upstream.asked()
            leader.rst()
            await until(lambda: worker.connections and worker.connections[0].closed_at, "the upstream stays")
            # Whoever comes now has an answer of their own.
            follower = await clients.begin()
            await worker.tell(*WHOLE, end=True, of=1)
            assert (await follower.read_answer()).complete

    run(body())


def test_a_leader_that_fails_before_content_is_followed_by_one_other_leader() -> None:
    async def body() -> None:
        asked = asyncio.Event()

        async def fails(conn: Connection, request: Request) -> None:
            await asked.wait()
            conn.rst()

        good = sse_answer(WHOLE)
        async with sharing(fails) as (bench, clients):
            bench.upstream.scripts += [_sending(good)]
            leader = await clients.begin()
            await bench.upstream.asked()
            followers = [await clients.begin() for _ in range(5)]
            await waits(bench, 5)
            asked.set()
            assert (await leader.read_answer()).status == 502
            for client in followers:
                assert (await client.read_answer()).body == b"".join(WHOLE)
            assert len(bench.upstream.requests) == 2

    run(body())


def test_after_content_those_who_stream_are_told_of_a_failure() -> None:
    async def body() -> None:
        worker = Worker()
        async with sharing(worker) as (bench, clients):
            leader, follower = await clients.begin(), await clients.begin()
            await waits(bench, 1)
            await worker.tell(ROLE, PIECES[0])
            await follower.read_until(b"piece 0")
            worker.connections[0].rst()
            for client in (leader, follower):
                rest = await client.read_until_close()
                assert b'"error"' in rest
                assert b"[DONE]" not in rest

    run(body())


def test_an_error_is_told_once_and_under_each_calls_own_id() -> None:
    async def body() -> None:
        worker = Worker()
        async with sharing(worker) as (bench, clients):
            leader, follower = await clients.begin(), await clients.begin()
            await waits(bench, 1)
            await worker.tell(ROLE, PIECES[0], chat_chunk('"error"'))
            for client in (leader, follower):
                await client.read_until(b"error")
            await worker.tell(event({"error": {"message": "broken", "type": "x", "code": 500}}), end=True)
            for client in (leader, follower):
                rest = await client.read_until_close()
                assert rest.count(b'data: {"error"') == 1
                assert b"broken" in rest

    run(body())


def _sending(data: bytes) -> Any:
    async def script(conn: Connection, request: Request) -> None:
        await conn.send(data)

    return script
