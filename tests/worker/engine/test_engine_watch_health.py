"""What the watch makes of bad and late answers: doubt, death, or neither."""

import asyncio

import pytest
from engine_watched import LATE, REFUSED, Watched
from fakes import until
from tailrace.worker.engine.settings import WatchSettings
from tailrace.worker.engine.state import Phase
from tailrace.worker.engine.watch import Died


def test_a_bad_answer_is_doubted_at_once_and_death_after_three():
    async def run() -> None:
        async with Watched() as it:
            it.client.well = "/health answers 503"
            with pytest.raises(Died, match="503, 3 times"):
                await it.task
            assert [(state.phase, state.reason) for state in it.states[-2:]] == [
                (Phase.SUSPECT, "/health answers 503"),
                (Phase.DEAD, "/health answers 503, 3 times in a row"),
            ]

    asyncio.run(run())


def test_a_doubted_engine_that_answers_again_is_ready_again():
    async def run() -> None:
        settings = WatchSettings(poll=0.001, health=0.001, failures=100_000)
        async with Watched(settings) as it:
            it.client.well = REFUSED
            await until(lambda: it.state.phase is Phase.SUSPECT)
            assert not it.state.ready
            it.client.well = None
            await until(lambda: it.state.ready)
            assert it.state.reason == ""

    asyncio.run(run())


def test_a_frozen_engine_is_doubted_and_dead_after_three_late_answers():
    async def run() -> None:
        async with Watched() as it:
            it.client.well = it.client.figures = LATE
            with pytest.raises(Died, match="no answer to /health within 2 s, 3 times"):
                await it.task
            assert [state.phase for state in it.states].count(Phase.SUSPECT) == 1

    asyncio.run(run())


def test_one_late_answer_is_no_reason_for_doubt():
    async def run() -> None:
        async with Watched() as it:
            for _ in range(3):
                it.client.once = LATE
                await it.more("checks")
            assert all(state.phase is not Phase.SUSPECT for state in it.states)

    asyncio.run(run())


def test_an_engine_too_busy_to_answer_is_kept_while_its_streams_go_on():
    async def run() -> None:
        async with Watched() as it:
            real = it.client.health

            async def late_while_streaming():
                it.clock.now += 2
                it.watch.progress.made()
                return await real()

            it.client.health = late_while_streaming
            it.client.well = LATE
            await it.more("checks", 10)
            assert it.state.ready

    asyncio.run(run())


def test_metrics_that_fail_bring_the_health_check_forward():
    async def run() -> None:
        settings = WatchSettings(poll=0.001, quiet_poll=0.001, health=3600.0)
        async with Watched(settings) as it:
            await it.more("readings")
            it.client.well = it.client.figures = REFUSED
            await until(lambda: it.state.phase is Phase.SUSPECT)

    asyncio.run(run())
