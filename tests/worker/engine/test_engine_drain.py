"""An engine that drains before it goes."""

import asyncio
import os
import signal

from engine_launched import Told, launched, post
from fakes import until
from tailrace.worker.engine.launch import engine
from tailrace.worker.engine.state import Phase


def test_a_drain_waits_until_the_engine_says_that_it_is_empty(fake_vllm):
    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), lambda state: None) as it:
            await until(lambda: it.state.ready)
            await post(it, "/running/2")
            assert not await it.drain(0.05)
            assert it.state.draining
            assert it.state.phase is Phase.READY
            assert not it.state.ready
            draining = asyncio.ensure_future(it.drain(20.0))
            await post(it, "/running/0")
            assert await draining

    asyncio.run(run())


def test_a_drain_waits_for_requests_that_the_engine_has_not_counted_yet(fake_vllm):
    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), lambda state: None) as it:
            await until(lambda: it.state.ready)
            it.request_sent()
            assert not await it.drain(0.05)
            it.bytes_heard()
            it.request_over()
            assert await it.drain(20.0)

    asyncio.run(run())


def test_an_engine_that_dies_while_it_drains_stays_dead(fake_vllm):
    told = Told()

    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), told) as it:
            await until(lambda: it.state.ready)
            await it.drain(20.0)
            os.kill(it.state.pid, signal.SIGKILL)
            await until(lambda: it.state.failures == 1)
            await asyncio.sleep(0.05)
            assert it.state.dead
            assert await it.drain(20.0)

    asyncio.run(run())
    assert told.phases(but="suspect") == ["starting", "warming", "ready", "dead"]
