"""What a death told to the watch ends, and what it does not."""

import asyncio

import pytest
from engine_doubles import Clock
from engine_watched import FAST, Script, Watched, load
from fakes import until
from tailrace.worker.engine.state import Phase
from tailrace.worker.engine.watch import Died, EngineWatch


def test_death_is_told_once_and_a_new_life_forgets_the_old_load():
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = load(3, 0)
            await until(lambda: it.state.running == 3)
            since = it.state.since
            it.clock.now += 5
            it.watch.died("its process ended")
            assert it.state.dead
            assert (it.state.running, it.state.since) == (0, since + 5)
            told = len(it.states)
            it.watch.died("again")
            assert len(it.states) == told
            with pytest.raises(Died, match="its process ended"):
                await it.task
            it.watch.begin()
            assert it.state.phase is Phase.STARTING
            assert it.state.sampled == 0

    asyncio.run(run())


def test_work_is_cancelled_by_death():
    async def run() -> None:
        watch = EngineWatch(Script(), FAST, lambda state: None, Clock())
        watch.begin()
        cancelled = []

        async def work() -> None:
            try:
                await asyncio.sleep(600)
            finally:
                cancelled.append(True)

        task = asyncio.ensure_future(watch.unless_dead(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        watch.died("gone")
        with pytest.raises(Died, match="gone"):
            await task
        assert cancelled

        watch.begin()
        task = asyncio.ensure_future(watch.unless_dead(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(cancelled) == 2

    asyncio.run(run())


def test_a_listener_that_raises_does_not_stop_the_watch(caplog):
    def broken(state) -> None:
        raise RuntimeError("listener")

    watch = EngineWatch(Script(), FAST, broken, Clock())
    watch.change(running=1)
    assert watch.state.running == 1
    assert "was not taken" in caplog.text
