"""Lifecycle of a gateway's processes: what is left of one that dies."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import AsyncExitStack

import orjson
from fakes import RawClient, Upstream, chat_chunk, chunked, run, sse_head, yaml_for
from served import QUICK, engine, serving

from cases.scene import DONE, END, FINISH, PATH, ROLE, STREAM, framed

PROCESSES = 4
EACH = 2
LIMIT = PROCESSES * EACH


class Gate:
    """Streams that begin, wait for `open` and then end well."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("a")]))
        await self.open.wait()
        await conn.send(chunked(FINISH) + chunked(DONE) + chunked(b""))


async def admitted(client):
    """Ask for a stream; whether it has begun, or there was no room for it."""
    await client.request("POST", PATH, orjson.dumps(STREAM))
    head = await client.read_until(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 200 "):
        await client.read_until(b'"a"')
        return True
    assert head.startswith(b"HTTP/1.1 429 ")
    return False


async def whole(client):
    """Whether a stream goes on to its end, or was cut."""
    try:
        return (await client.read_until(END)).endswith(DONE + b"\r\n" + END)
    except (OSError, asyncio.IncompleteReadError, EOFError):
        return False


async def by_process(url, stack):
    """Two clients of each process."""
    found: dict[str, list[RawClient]] = {}
    while len(found) < PROCESSES or min(map(len, found.values())) < EACH:
        client = await stack.enter_async_context(RawClient(url))
        found.setdefault((await client.get("/healthz")).header("x-request-id")[:16], []).append(client)
    return [group[:EACH] for group in found.values()]


async def gauge(served, name):
    text = (await served.get("/metrics")).body.decode()
    return sum(float(value) for value in re.findall(rf"^tailrace_{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def test_LIF_07_one_process_of_four_is_killed(tmp_path):
    async def body():
        gate = Gate()
        quota = f"- quota: {{limits: [{{concurrent_requests: {LIMIT}}}]}}"
        more = f"{QUICK}processes: {PROCESSES}\nstate: {tmp_path / 'state'}\n"
        async with (
            Upstream(engine(gate)) as upstream,
            serving(tmp_path, yaml_for(upstream, plugins=quota, more=more)) as it,
            AsyncExitStack() as stack,
        ):

            async def another():
                return await admitted(await stack.enter_async_context(RawClient(it.url)))

            groups = await by_process(it.url, stack)
            streams = [client for group in groups for client in group]
            for client in streams:
                assert await admitted(client)
            assert not await another()
            while await gauge(it, "requests_active") != LIMIT:
                await asyncio.sleep(0.02)
            before = it.processes
            os.kill(before[0], signal.SIGKILL)
            await it.until("SIGKILL; it is replaced")
            # Its gauges are gone, and those of the others are not.
            for name in ("requests_active", "worker_inflight"):
                while (now := await gauge(it, name)) != LIMIT - EACH:
                    assert LIMIT - EACH <= now <= LIMIT
                    await asyncio.sleep(0.02)
            # Its slots come back, and no more than those.
            for _ in range(EACH):
                while not await another():
                    await asyncio.sleep(0.02)
            for _ in range(2 * PROCESSES):
                assert not await another()
            while len(set(it.processes) - set(before)) != 1:
                await asyncio.sleep(0.02)
            gate.open.set()
            ends = await asyncio.gather(*map(whole, streams))
            assert sorted(sum(ends[place : place + EACH]) for place in range(0, LIMIT, EACH)) == [0, 2, 2, 2]
            assert await gauge(it, "process_restarts_total") == 1

    run(body(), limit=50)
