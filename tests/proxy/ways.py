"""Ways in which a plugin waits for something: with what asyncio, anyio, httpx and aiohttp offer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import anyio
import anyio.to_thread
import httpx


class Elsewhere:
    """What a plugin waits for: `wait` passes at once or never, and so does what `url` serves."""

    def __init__(self, url: str, *, passes: bool) -> None:
        self.url = url
        self.passes = passes
        self.waiting = asyncio.Event()
        self.cancelled = 0

    async def wait(self) -> str:
        await asyncio.sleep(0)
        if not self.passes:
            try:
                self.waiting.set()
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return "done"


Way = Callable[[Elsewhere], Awaitable[object]]
WAYS: dict[str, Way] = {}


def way(function: Way) -> Way:
    WAYS[function.__name__] = function
    return function


@way
async def httpx_get(there):
    async with httpx.AsyncClient() as client:
        return (await client.get(there.url)).status_code == 200


@way
async def aiohttp_get(there):
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=9)) as session:
        async with session.get(there.url) as answer:
            return (await answer.json())["choices"]


@way
async def anyio_task_group(there):
    done = []

    async def child():
        done.append(await there.wait())

    async with anyio.create_task_group() as group:
        group.start_soon(child)
        group.start_soon(child)
    return len(done) == 2


@way
async def anyio_start(there):
    async def child(*, task_status):
        task_status.started("begun")
        await there.wait()

    async with anyio.create_task_group() as group:
        return await group.start(child) == "begun"


@way
async def anyio_limits(there):
    with anyio.move_on_after(9) as outer, anyio.fail_after(9), anyio.CancelScope() as inner:
        await there.wait()
    return not outer.cancelled_caught and not inner.cancelled_caught


@way
async def anyio_lock(there):
    lock, event = anyio.Lock(), anyio.Event()

    async def holder():
        async with lock:
            event.set()
            await there.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(holder)
        await event.wait()
        async with lock:
            return lock.statistics().locked


@way
async def anyio_thread(there):
    result = await anyio.to_thread.run_sync(lambda: "thread")
    await there.wait()
    return result == "thread"


@way
async def asyncio_thread(there):
    result = await asyncio.to_thread(lambda: "thread")
    await there.wait()
    return result == "thread"


@way
async def task_group(there):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(there.wait()) for _ in range(2)]
    return [task.result() for task in tasks] == ["done"] * 2


@way
async def nested_timeouts(there):
    async with asyncio.timeout(9), asyncio.timeout(8) as inner:
        inner.reschedule(asyncio.get_running_loop().time() + 7)
        return await there.wait()


@way
async def wait_for(there):
    return await asyncio.wait_for(there.wait(), 9)


@way
async def gather(there):
    return await asyncio.gather(there.wait(), there.wait()) == ["done"] * 2


@way
async def shield(there):
    inner = asyncio.ensure_future(there.wait())
    try:
        return await asyncio.shield(inner)
    finally:
        inner.cancel()


@way
async def wait(there):
    task = asyncio.ensure_future(there.wait())
    try:
        done, _ = await asyncio.wait({task}, timeout=9)
        return done == {task}
    finally:
        task.cancel()
