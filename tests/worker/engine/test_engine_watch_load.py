"""What the watch reads of an engine's load and models, and how often it asks."""

import asyncio

import pytest
from engine_watched import LATE, Watched, load
from fakes import until
from tailrace.worker.engine.client import Unanswered
from tailrace.worker.engine.settings import WatchSettings
from tailrace.worker.engine.state import Model


def test_each_change_of_the_load_is_told_once():
    async def run() -> None:
        async with Watched() as it:
            await it.more("readings")
            it.states.clear()
            it.client.figures = load(3, 1, kv_use=0.4567)
            await until(lambda: it.state.running == 3)
            assert (it.state.waiting, it.state.kv_use) == (1, 0.46)
            await it.more("readings", 10)
            assert len(it.states) == 1

    asyncio.run(run())


def test_tokens_per_second_approach_the_true_rate():
    async def run() -> None:
        async with Watched() as it:
            made = 0.0
            for _ in range(80):
                made += 10
                it.clock.now += 0.1
                it.client.figures = load(1, 0, generated=made)
                await it.more("readings", 2)
            assert it.state.tokens_per_second == pytest.approx(100, rel=0.3)

    asyncio.run(run())


def test_a_restarted_counter_is_no_negative_rate():
    async def run() -> None:
        async with Watched() as it:
            for generated in (0, 500):
                it.clock.now += 1
                it.client.figures = load(1, 0, generated=generated)
                await it.more("readings")
            rate = it.state.tokens_per_second
            it.clock.now += 1
            it.client.figures = load(1, 0, generated=1)
            await it.more("readings")
            assert 0 < it.state.tokens_per_second < rate

    asyncio.run(run())


@pytest.mark.parametrize("figures", [None, b"nothing of interest", Unanswered("/metrics: cut")])
def test_missing_metrics_are_not_death(figures):
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = figures
            await it.more("checks", 10)
            await it.more("readings", 3)
            assert it.state.ready
            assert it.state.sampled in (0, 1000.0)

    asyncio.run(run())


def test_adapters_are_seen_and_an_engine_that_will_not_tell_keeps_the_last_list():
    async def run() -> None:
        async with Watched() as it:
            models = (Model(id="base"), Model(id="lora", parent="base"))
            it.client.listed = models
            await until(lambda: it.state.models == models)
            it.client.listed = None
            await it.more("checks", 5)
            it.client.listed = LATE
            await it.more("checks", 5)
            assert it.state.models == models

    asyncio.run(run())


def test_a_quiet_engine_is_asked_less_and_at_once_when_work_comes():
    async def run() -> None:
        settings = WatchSettings(poll=0.0005, quiet_poll=3600.0, health=0.001)
        async with Watched(settings) as it:
            await until(lambda: it.watch._quiet and it.client.readings > 5)
            await asyncio.sleep(0.05)
            before = it.client.readings
            it.client.figures = load(1, 0)
            it.watch.stir()
            await until(lambda: it.state.running == 1)
            assert it.client.readings > before

    asyncio.run(run())


def test_an_engine_that_holds_a_request_of_ours_is_asked_at_the_busy_pace_whatever_it_says():
    async def run() -> None:
        settings = WatchSettings(poll=0.0005, quiet_poll=3600.0, health=0.001)
        async with Watched(settings) as it:
            it.watch.progress.entered()
            await it.more("readings", 50)

    asyncio.run(run())


def test_readings_that_bring_all_metrics_are_spaced_out():
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = load(1, 0) + b"x" * 40_000_000
            await until(lambda: it.state.running == 1)
            before = it.client.readings
            await it.more("checks", 20)
            assert it.client.readings == before

    asyncio.run(run())
