"""An engine that is launched, through its whole life, and that leaves nothing behind."""

import asyncio
from pathlib import Path

import pytest
import uvloop
from engine_doubles import alive
from engine_launched import Told, launched
from fakes import until
from tailrace.worker.engine.command import EngineError
from tailrace.worker.engine.launch import engine
from tailrace.worker.engine.settings import WarmupSettings
from tailrace.worker.engine.state import Phase


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_engine_comes_up_serves_and_goes(fake_vllm, capfd, loop):
    told = Told()

    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), told) as it:
            await until(lambda: it.state.ready)
            assert it.target.startswith("unix:/")
            assert it.state.warmth.kind == "chat"
            assert it.state.warmth.steady
            assert [model.id for model in it.state.models] == ["m"]
            pid, path = it.state.pid, Path(it.target.removeprefix("unix:"))
            assert path.parent.stat().st_mode & 0o777 == 0o700
        assert not alive(pid)
        assert not path.parent.exists()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
    assert told.phases(but="suspect") == ["starting", "warming", "ready", "dead"]
    said = capfd.readouterr().err
    assert "engine | arguments serves --uds=/" in said
    assert "--seed=1" in said


def test_an_engine_that_will_not_end_is_ended_with_its_family(fake_vllm, capfd):
    async def run() -> None:
        async with engine(launched(fake_vllm, "stubborn"), lambda state: None) as it:
            await until(lambda: it.state.ready)

    asyncio.run(run())
    said = capfd.readouterr().err
    family = [int(pid) for line in said.splitlines() if "| family " in line for pid in line.split("family")[1].split()]
    assert len(family) == 3, said
    assert not any(map(alive, family))


def test_a_model_that_refuses_its_warm_up_is_ready_and_says_so(fake_vllm):
    told = Told()
    settings = launched(fake_vllm, "serves", warmup=WarmupSettings(kind="embeddings"))

    async def run() -> None:
        async with engine(settings, told) as it:
            await until(lambda: it.state.ready)
            assert it.state.warmth.skipped == "refused: embeddings: 404 Not Found"

    asyncio.run(run())


def test_what_the_sidecar_raises_comes_out_as_it_is(fake_vllm):
    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), lambda state: None) as it:
            await until(lambda: it.state.ready)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(run())


def test_without_vllm_nothing_starts():
    settings = launched("/nowhere/vllm", "m")

    async def run() -> None:
        async with engine(settings, lambda state: None):
            raise AssertionError

    with pytest.raises(EngineError, match=r"pip install vllm"):
        asyncio.run(run())


def test_cancelled_in_any_phase_it_leaves_nothing(fake_vllm):
    async def run(model: str, phase: Phase) -> None:
        told = Told()
        opened = asyncio.Event()

        async def hold() -> None:
            async with engine(launched(fake_vllm, model), told):
                opened.set()
                await asyncio.sleep(600)

        task = asyncio.ensure_future(hold())
        await opened.wait()
        await until(lambda: any(state.phase is phase and state.pid for state in told.states))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(alive(state.pid) for state in told.states if state.pid)

    for model, phase in (("hangs", Phase.STARTING), ("serves", Phase.WARMING), ("serves", Phase.READY)):
        asyncio.run(run(model, phase))
