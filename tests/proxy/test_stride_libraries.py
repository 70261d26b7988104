"""What plugins use inside a request: structures of asyncio, anyio, httpx and aiohttp, to their end and broken off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import aiohttp
import anyio
import httpx
import orjson
import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, run, until, yaml_for
from tailrace.proxy.plugin import Plugin
from ways import WAYS, Elsewhere, Way


@dataclass(frozen=True)
class Config:
    pass


class Uses(Plugin[Config]):
    """Goes one of the ways before the call goes on."""

    Config = Config
    going: Way
    there: Elsewhere
    ended: list[object]

    async def on_request(self, call):
        try:
            Uses.ended.append(await Uses.going(Uses.there))
        except BaseException as error:
            Uses.ended.append(error)
            raise
        assert asyncio.current_task().cancelling() == 0


async def through(going: Way, *, passes: bool, leave: bool = False) -> object:
    """Send a call whose plugin goes this way; how the way ended. Nothing may be left of it."""
    Uses.going, Uses.ended = going, []

    async def elsewhere(conn, request):
        if not passes:
            Uses.there.waiting.set()
            await conn.wait_closed()
        else:
            await conn.send(GOOD)

    async with Upstream(GOOD) as worker, Upstream(elsewhere) as other:
        Uses.there = Elsewhere(other.url, passes=passes)
        async with gateway(yaml_for(worker, plugins=f"[{__name__}:Uses]")) as process:
            before = asyncio.all_tasks()
            async with RawClient(process.doors[0].shown) as client:
                await client.request("POST", PATH, orjson.dumps(CHAT))
                if leave:
                    await Uses.there.waiting.wait()
                else:
                    assert (await client.read_answer()).status == 200
            await until(lambda: not process.service.active and asyncio.all_tasks() <= before, "what the plugin began")
            await until(lambda: len(other.closed_at) == len(other.connections), "its connection stayed open")
            assert process.service.memory.used == process.service.chain.calls.count == 0
    assert len(worker.requests) == (not leave)
    (ended,) = Uses.ended
    return ended


@pytest.mark.parametrize("name", WAYS)
def test_goes_through(name):
    assert run(through(WAYS[name], passes=True)) in (True, "done") or name == "aiohttp_get"


@pytest.mark.parametrize("name", WAYS)
def test_is_cancelled_when_the_client_leaves(name):
    assert isinstance(run(through(WAYS[name], passes=False, leave=True)), asyncio.CancelledError)


SHORT = 0.02


async def httpx_limit(there):
    async with httpx.AsyncClient(timeout=SHORT) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get(there.url)


async def aiohttp_limit(there):
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SHORT)) as session:
        with pytest.raises(TimeoutError):
            await session.get(there.url)


async def move_on(there):
    with anyio.move_on_after(9) as outer, anyio.move_on_after(SHORT) as inner:
        await there.wait()
    assert (outer.cancelled_caught, inner.cancelled_caught) == (False, True)


async def move_on_outer(there):
    with anyio.move_on_after(SHORT) as outer, anyio.move_on_after(9) as inner:
        await there.wait()
    assert (outer.cancelled_caught, inner.cancelled_caught) == (True, False)


async def fail(there):
    with pytest.raises(TimeoutError):
        with anyio.fail_after(SHORT):
            async with anyio.create_task_group() as group:
                group.start_soon(there.wait)
                await there.wait()


async def shielded(there):
    with anyio.move_on_after(SHORT) as outer, anyio.CancelScope(shield=True):
        await anyio.sleep(2 * SHORT)
    assert outer.cancel_called


async def cancelled_group(there):
    async with anyio.create_task_group() as group:
        group.start_soon(there.wait)
        await anyio.sleep(0)
        group.cancel_scope.cancel()
    await anyio.sleep(0)


async def failing_group(there):
    async def child():
        await anyio.sleep(0)
        raise ValueError

    for make in (anyio.create_task_group, asyncio.TaskGroup):
        with pytest.raises(ExceptionGroup):
            async with make() as group:
                getattr(group, "start_soon", lambda work: group.create_task(work()))(child)
                await there.wait()


async def timeout_inner(there):
    async with asyncio.timeout(9):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT):
                await there.wait()


async def timeout_outer(there):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SHORT), asyncio.timeout(9):
            await there.wait()


async def timeout_mixed(there):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SHORT):
            with anyio.fail_after(9):
                await there.wait()


async def wait_for_limit(there):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(there.wait(), SHORT)


LIMITS = [
    httpx_limit,
    aiohttp_limit,
    move_on,
    move_on_outer,
    fail,
    shielded,
    cancelled_group,
    failing_group,
    timeout_inner,
    timeout_outer,
    timeout_mixed,
    wait_for_limit,
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.__name__)
def test_its_own_limits_and_failures_leave_nothing_behind(limit):
    """The call goes on to the worker; no cancellation is left over."""
    assert run(through(limit, passes=False)) is None
