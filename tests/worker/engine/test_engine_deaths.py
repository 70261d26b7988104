"""An engine that dies, hangs or is unwell, and its next life."""

import asyncio
import os
import signal

from engine_doubles import alive
from engine_launched import Told, launched, post
from fakes import until
from tailrace.worker.engine.launch import engine
from tailrace.worker.engine.settings import StartSettings, WatchSettings
from tailrace.worker.engine.watch import EngineWatch


def test_a_killed_engine_is_dead_at_once_and_comes_back(fake_vllm):
    told = Told()

    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), told) as it:
            await until(lambda: it.state.ready)
            first, target = it.state.pid, it.target
            os.kill(first, signal.SIGKILL)
            await until(lambda: it.state.ready and it.state.pid != first)
            assert it.target == target
            assert it.state.failures == 1

    asyncio.run(run())
    life = ["starting", "warming", "ready", "dead"]
    assert told.phases(but="suspect") == life + life
    assert any(state.dead and state.reason.startswith("its process ended (signal 9)") for state in told.states)


def test_a_crash_loop_is_reported_with_the_last_words_and_goes_on(fake_vllm, caplog):
    told = Told()

    async def run() -> None:
        async with engine(launched(fake_vllm, "crashes"), told):
            await until(lambda: told.states and told.states[-1].failures >= 4)

    asyncio.run(run())
    last = 'its process ended (exit code 3); it last said "cannot load the model"'
    assert f"crash loop, 3 failures in a row, the last: {last}" in [state.reason for state in told.states]
    assert "crash loop" in caplog.text
    assert told.phases()[:4] == ["starting", "dead", "starting", "dead"]


def test_an_engine_that_never_answers_is_given_up_and_tried_again(fake_vllm):
    told = Told()
    start = StartSettings(limit=0.5, grace=0.05, back_off=0.001, back_off_limit=0.002)

    async def run() -> None:
        async with engine(launched(fake_vllm, "hangs", start), told):
            await until(lambda: told.states and told.states[-1].failures >= 2)

    asyncio.run(run())
    pids = {state.pid for state in told.states if state.pid}
    assert len(pids) >= 2
    assert not any(map(alive, pids))
    assert any(state.reason.startswith("not healthy after 0.5 s") for state in told.states)


def test_a_frozen_engine_is_seen_killed_and_replaced(fake_vllm):
    told = Told()
    watch = WatchSettings(poll=0.001, quiet_poll=0.01, health=0.01, timeout=0.2)
    patient = StartSettings(limit=20.0, grace=600.0, back_off=0.001, back_off_limit=0.002)

    async def run() -> None:
        async with engine(launched(fake_vllm, "serves", patient, watch=watch), told) as it:
            await until(lambda: it.state.ready)
            frozen = it.state.pid
            os.kill(frozen, signal.SIGSTOP)
            await until(lambda: it.state.ready and it.state.pid != frozen)
            assert not alive(frozen)

    asyncio.run(run())
    assert any(state.dead and "no answer to /health" in state.reason for state in told.states)


def test_an_engine_that_calls_itself_unwell_is_replaced(fake_vllm):
    told = Told()

    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), told) as it:
            await until(lambda: it.state.ready)
            first = it.state.pid
            await post(it, "/health/503")
            await until(lambda: it.state.ready and it.state.pid != first)

    asyncio.run(run())
    assert told.phases()[:5] == ["starting", "warming", "ready", "suspect", "dead"]


def test_a_fault_of_the_sidecar_ends_one_life_and_not_the_engine(fake_vllm, monkeypatch, caplog):
    told = Told()
    real = EngineWatch.read_models
    faults = [ZeroDivisionError()]

    async def broken(watch: EngineWatch) -> None:
        if faults:
            raise faults.pop()
        await real(watch)

    monkeypatch.setattr(EngineWatch, "read_models", broken)

    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), told) as it:
            await until(lambda: it.state.ready)

    asyncio.run(run())
    assert any(state.reason.startswith("fault of the sidecar: ZeroDivisionError") for state in told.states)
    assert "ZeroDivisionError" in caplog.text
