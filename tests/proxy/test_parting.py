"""Workers that are drained within a time, and what becomes of what still runs there then."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import (
    CHAT,
    PATH,
    Connection,
    RawClient,
    Request,
    Upstream,
    chat_chunk,
    chunked,
    decoded,
    run,
    sse_head,
    until,
)
from served import QUICK, Served, serving
from sidecars import STREAMED, found, sidecar, simulated, url_of
from tailrace.proxy.fault import DRAINED, Fault
from tailrace.proxy.gateway import GatewayProcess, running
from tailrace.proxy.parting import Parting, part

STREAM = {**CHAT, "stream": True}


async def begins(conn: Connection, request: Request) -> None:
    """A stream of one token, which goes on for ever."""
    if request.method == "GET":
        await conn.send(b"HTTP/1.1 404 N\r\ncontent-length: 0\r\n\r\n")
        return
    await conn.send(sse_head() + chunked(chat_chunk("one")))
    await conn.wait_closed()


async def hangs(conn: Connection, request: Request) -> None:
    await conn.wait_closed()


def yaml(*urls: str, plugins: str = "[]", model: str = "m") -> str:
    listed = ", ".join(f"'{url}'" for url in urls)
    return f"listen: [127.0.0.1:0]\nmodels: {{{model}: {{workers: [{listed}]}}}}\nplugins: {plugins}\n"


async def told_of_it(client: RawClient) -> None:
    """The stream ends with the error, behind heartbeats if need be."""
    while b"error" not in (got := await client.read_chunk() or (b"error", b""))[0]:
        pass
    assert DRAINED.code.encode() in got[0]


def test_what_runs_at_the_end_of_the_time_ends_honestly() -> None:
    async def body() -> None:
        async with Upstream(begins) as upstream, running(decoded(yaml(upstream.url))) as process:
            (worker,) = process.workers()
            async with RawClient(url_of(process)) as client, RawClient(url_of(process)) as other:
                await client.request("POST", PATH, json.dumps(STREAM).encode())
                assert (await client.read_head()).status == 200
                await client.read_chunk()
                worker.drained = True
                worker.changed()
                parting = Parting(process.workers)
                parting.begin(worker.name, 0.0)
                await told_of_it(client)
                assert (await other.post(PATH, CHAT)).status == 503
                await until(lambda: upstream.closed_at and not worker.connections.busy)

    run(body())


def test_who_is_brought_back_or_has_no_limit_finishes_all(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with Upstream(begins) as upstream, running(decoded(yaml(upstream.url))) as process:
            (worker,) = process.workers()
            async with RawClient(url_of(process)) as client:
                await client.request("POST", PATH, json.dumps(STREAM).encode())
                await client.read_head()
                await client.read_chunk()
                worker.drained = True
                parting = Parting(process.workers)
                for again in (
                    lambda: parting.end(worker.name),
                    lambda: parting.keep([]),
                    lambda: parting.begin(worker.name, 60.0),
                    lambda: setattr(worker, "drained", False),
                ):
                    parting.begin(worker.name, 0.0)
                    again()
                    await asyncio.sleep(0.03)
                    (connection,) = worker.connections.busy
                    assert connection.sink is not None
                assert not parting._limits
                parting.begin(worker.name, 60.0)
                parting.keep([worker.name])
                assert parting._limits

    run(body())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_what_waits_there_goes_elsewhere_and_what_connects_too() -> None:
    async def body() -> None:
        async with Upstream(hangs) as one, Upstream(hangs) as two:
            async with running(decoded(yaml(one.url, two.url, plugins="[retry: {}, route: {}]"))) as process:
                first, second = process.workers()
                second.bar("test")
                async with RawClient(url_of(process)) as client:
                    await client.request("POST", PATH, json.dumps(STREAM).encode())
                    await until(lambda: first.connections.busy)
                    second.unbar("test")
                    first.drained = True
                    first.changed()
                    part(first)
                    await until(lambda: second.connections.busy)
                    assert not first.connections.busy

    run(body())


def test_the_questions_of_a_watch_are_no_calls() -> None:
    async def body() -> None:
        async with simulated() as sim, sidecar(found(sim.url)) as side:
            async with running(decoded(yaml(url_of(side), model="tiny")), watching=True) as process:
                (worker,) = process.workers()
                await until(lambda: worker.standing.models)
                (feed,) = worker.connections.busy
                part(worker)
                await asyncio.sleep(0.03)
                assert worker.connections.busy == {feed}
                assert feed.sink is not None

    run(body())


def test_what_waits_for_a_connection_is_told() -> None:
    told: list[tuple[str, bool, bool]] = []

    def doubted(fault: Fault, lost: bool) -> None:
        told.append((fault.kind, fault.sent, lost))

    worker: Any = SimpleNamespace(name="w", connections=SimpleNamespace(busy=set(), connecting=[doubted]))
    part(worker)
    assert told == [("drained", False, True)]


async def streamed(process: GatewayProcess, **fields: Any) -> tuple[str, RawClient]:
    """A stream's text until so many events have come, and its client."""
    client = await RawClient.connect(url_of(process))
    await client.request("POST", PATH, json.dumps(STREAMED | fields).encode())
    assert (await client.read_head()).status == 200
    return "", client


async def text_of(client: RawClient, events: int = 1 << 30) -> str:
    """The text of the next events of a stream, or of all that follow."""
    text, rest = "", b""
    while events > 0:
        chunk = await client.read_chunk()
        if chunk is None or not chunk[0]:
            break
        *whole, rest = (rest + chunk[0]).split(b"\n\n")
        for one in whole:
            events -= 1
            if one.startswith(b"data: {"):
                told = json.loads(one[6:])
                assert "error" not in told, told
                text += "".join(choice["delta"].get("content") or "" for choice in told["choices"])
    return text


@pytest.mark.parametrize("how", ["gateway", "sidecar"])
def test_a_stream_outlives_the_drain_of_its_worker(how: str) -> None:
    asked = {"max_tokens": 60, "temperature": 0}

    async def body() -> None:
        async with AsyncExitStack() as stack:
            sims = [await stack.enter_async_context(simulated(itl_ms=10, answer_tokens=60)) for _ in range(2)]
            sides = [await stack.enter_async_context(sidecar(found(sim.url), "drain: 0")) for sim in sims]
            text = yaml(*map(url_of, sides), plugins="[retry: {}, rescue: {}, route: {}]", model="tiny")
            process = await stack.enter_async_context(running(decoded(text), watching=True))
            workers = list(process.workers())
            await until(lambda: all(worker.standing.models for worker in workers))
            _, whole = await streamed(process, **asked)
            expected = await text_of(whole)
            await whole.close()
            _, client = await streamed(process, **asked)
            begun = await text_of(client, 8)
            at = next(number for number, worker in enumerate(workers) if worker.inflight)
            if how == "gateway":
                workers[at].drained = True
                workers[at].changed()
                part(workers[at])
            else:
                await sides[at].drain(asyncio.Event())
            assert begun + await text_of(client) == expected
            assert begun != expected
            await client.close()

    run(body())


async def drain(it: Served, **fields: Any) -> Any:
    async with RawClient(it.admin) as client:
        return await client.post("/admin/workers/drain", fields)


def test_an_operator_gives_a_limit(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(begins) as upstream:
            text = yaml(upstream.url) + QUICK
            async with serving(tmp_path, text) as it, RawClient(it.url) as client:
                await client.request("POST", PATH, json.dumps(STREAM).encode())
                await client.read_head()
                await client.read_chunk()
                for wrong in (-1, "5", True, 1e9):
                    answer = await drain(it, worker=upstream.url, limit=wrong)
                    assert (answer.status, answer.json()["error"]["code"]) == (400, "bad_request")
                assert (await drain(it, worker=upstream.url, limit=0.05)).status == 200
                await told_of_it(client)

    run(body())
