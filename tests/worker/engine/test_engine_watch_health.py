"""What the watch makes of bad and late answers: doubt, death, or neither."""

import asyncio

import pytest
from engine_watched import LATE, REFUSED, Watched
from fakes import until
from tailrace.worker.engine import watch
from tailrace.worker.engine.settings import WatchSettings
from tailrace.worker.engine.state import Phase
from tailrace.worker.engine.watch import Died

RARE = WatchSettings(poll=3600.0, quiet_poll=3600.0, health=3600.0, models=3600.0)


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


def test_a_doubt_brings_the_health_check_forward():
    async def run() -> None:
        async with Watched(RARE) as it:
            await it.more("checks", 1)
            it.client.well = "/health answers 503"
            it.watch.doubt()
            await until(lambda: it.state.phase is Phase.SUSPECT)

    asyncio.run(run())


def test_doubts_bring_no_more_than_one_check_at_a_time_and_a_few_a_second():
    pauses = []

    async def run() -> None:
        async with Watched(RARE) as it:
            await it.more("checks", 1)
            answer = asyncio.get_running_loop().create_future()
            it.client.health = lambda: _count(it.client, answer)
            for _ in range(10):
                it.watch.doubt()
                await asyncio.sleep(0)
            assert it.client.checks == 2
            answer.set_result(None)
            for _ in range(10):
                it.watch.doubt()
                await asyncio.sleep(0.001)
            assert it.client.checks == 2
            assert pauses == [watch.RECHECK]

    async def _count(client, answer):
        client.checks += 1
        return await answer

    real = asyncio.sleep

    async def noted(seconds: float, *more) -> None:
        if 0.1 < seconds < RARE.health:
            pauses.append(seconds)
        await real(seconds, *more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watch.asyncio, "sleep", noted)
        asyncio.run(run())
