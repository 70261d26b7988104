"""What the watch makes of work without progress."""

import asyncio

import pytest
from engine_watched import Watched, load
from fakes import until
from tailrace.worker.engine.settings import WatchSettings
from tailrace.worker.engine.state import Phase
from tailrace.worker.engine.watch import Died


def test_work_without_progress_makes_suspect_then_dead_though_health_is_well():
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = load(2, 0, generated=5)
            await until(lambda: it.state.running == 2)
            it.clock.now += 29
            await it.more("checks")
            assert it.state.ready
            it.clock.now += 2
            await until(lambda: it.state.phase is Phase.SUSPECT)
            assert it.state.reason == "no progress with work in it for 30 s"
            it.clock.now += 100
            with pytest.raises(Died, match="no progress for 131 s"):
                await it.task

    asyncio.run(run())


@pytest.mark.parametrize("sign", ["tokens", "bytes"])
def test_any_progress_ends_the_doubt(sign):
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = load(2, 0, generated=5)
            await until(lambda: it.state.running == 2)
            it.clock.now += 31
            await until(lambda: it.state.phase is Phase.SUSPECT)
            if sign == "tokens":
                it.client.figures = load(2, 0, generated=6)
            else:
                it.watch.progress.made()
            await until(lambda: it.state.ready)

    asyncio.run(run())


def test_a_request_sent_into_a_frozen_engine_is_missed_though_its_metrics_show_none():
    async def run() -> None:
        async with Watched() as it:
            it.clock.now += 1000
            await it.more("checks")
            assert it.state.ready
            it.watch.progress.entered()
            it.clock.now += 31
            await until(lambda: it.state.phase is Phase.SUSPECT)
            it.watch.progress.left()
            await until(lambda: it.state.ready)

    asyncio.run(run())


def test_a_stall_is_never_judged_where_that_is_off():
    async def run() -> None:
        settings = WatchSettings(poll=0.001, health=0.001, stall=0, hung=0)
        async with Watched(settings) as it:
            it.client.figures = load(2, 0)
            await until(lambda: it.state.running == 2)
            it.clock.now += 1e6
            await it.more("checks")
            assert it.state.ready

    asyncio.run(run())
