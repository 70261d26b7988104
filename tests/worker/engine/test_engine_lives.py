"""An engine through its whole life, and through the next one."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import aiohttp
import pytest
import uvloop
from engine_doubles import alive
from fakes import until
from tailrace.worker.engine.command import EngineError
from tailrace.worker.engine.launch import Engine, engine
from tailrace.worker.engine.settings import EngineSettings, StartSettings, VllmSettings, WarmupSettings, WatchSettings
from tailrace.worker.engine.state import EngineState, Phase
from tailrace.worker.engine.watch import EngineWatch

START = StartSettings(limit=20.0, grace=0.05, back_off=0.001, back_off_limit=0.002)
WATCH = WatchSettings(poll=0.001, quiet_poll=0.01, health=0.01, models=0.01, timeout=2.0)


def launched(executable: str, model: str, start: StartSettings = START, **settings) -> EngineSettings:
    vllm = VllmSettings(model=model, executable=executable, args={"seed": 1})
    return EngineSettings(vllm=vllm, start=start, watch=settings.pop("watch", WATCH), **settings)


class Told:
    """All the states an engine went through."""

    def __init__(self) -> None:
        self.states: list[EngineState] = []

    def __call__(self, state: EngineState) -> None:
        self.states.append(state)

    def phases(self, *, but: str = "") -> list[str]:
        """The phases in turn. A killed engine may look suspect for a moment before its end is told: leave that out."""
        phases = [state.phase.value for state in self.states if state.phase.value != but]
        return [phase for n, phase in enumerate(phases) if n == 0 or phases[n - 1] != phase]


async def post(it: Engine, path: str) -> None:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(it.target.removeprefix("unix:"))) as session,
        session.post("http://engine" + path) as response,
    ):
        assert response.status == 200


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


def test_an_engine_that_will_not_end_is_ended_with_its_family(fake_vllm, capfd):
    async def run() -> None:
        async with engine(launched(fake_vllm, "stubborn"), lambda state: None) as it:
            await until(lambda: it.state.ready)

    asyncio.run(run())
    said = capfd.readouterr().err
    family = [int(pid) for line in said.splitlines() if "| family " in line for pid in line.split("family")[1].split()]
    assert len(family) == 3, said
    assert not any(map(alive, family))


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


def test_a_model_that_refuses_its_warm_up_is_ready_and_says_so(fake_vllm):
    told = Told()
    settings = launched(fake_vllm, "serves", warmup=WarmupSettings(kind="embeddings"))

    async def run() -> None:
        async with engine(settings, told) as it:
            await until(lambda: it.state.ready)
            assert it.state.warmth.skipped == "refused: embeddings: 404 Not Found"

    asyncio.run(run())


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

    with pytest.raises(EngineError, match=r"pip install 'tailrace\[vllm\]"):
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


@pytest.fixture
def found(fake_vllm, tmp_path):
    """Starts engines that the sidecar finds, on one address."""
    started = []

    def start() -> subprocess.Popen:
        path = tmp_path / "found.sock"
        path.unlink(missing_ok=True)
        started.append(subprocess.Popen([fake_vllm, "serve", "serves", f"--uds={path}"], stdout=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_found_engine_is_followed_by_its_health_alone(found, tmp_path):
    told = Told()
    settings = EngineSettings(url=f"unix:{tmp_path}/found.sock", watch=WATCH)

    async def run() -> None:
        async with engine(settings, told) as it:
            assert it.state.phase is Phase.STARTING
            process = found()
            await until(lambda: it.state.ready)
            process.kill()
            process.wait()
            await until(lambda: it.state.dead)
            found()
            await until(lambda: it.state.ready)
        assert it.target == settings.url

    asyncio.run(run())
    assert told.phases()[-4:] == ["dead", "starting", "warming", "ready"]


def test_a_found_engine_with_a_pid_file_is_dead_the_moment_its_process_is(found, tmp_path):
    told = Told()
    slow = WatchSettings(poll=600.0, quiet_poll=600.0, health=600.0, models=600.0)
    pid_file = tmp_path / "pid"
    settings = EngineSettings(url=f"unix:{tmp_path}/found.sock", pid_file=pid_file, watch=slow)

    async def run() -> None:
        async with engine(settings, told) as it:
            process = found()
            pid_file.write_text(f"{process.pid}\n")
            await until(lambda: it.state.ready)
            assert it.state.pid == process.pid
            process.kill()
            await until(lambda: it.state.dead)
            process.wait()
            assert it.state.reason == "its process ended"

    asyncio.run(run())


@pytest.mark.parametrize("content", ["", "not a pid", "999999999"])
def test_a_pid_file_of_no_use_is_reported_and_health_goes_on(found, tmp_path, content, caplog):
    pid_file = tmp_path / "pid"
    pid_file.write_text(content)
    settings = EngineSettings(url=f"unix:{tmp_path}/found.sock", pid_file=pid_file, watch=WATCH)

    async def run() -> None:
        found()
        async with engine(settings, lambda state: None) as it:
            await until(lambda: it.state.ready)
            assert it.state.pid is None

    asyncio.run(run())
    assert "pid" in caplog.text


def test_a_frozen_found_engine_is_dead_until_it_thaws(found, tmp_path):
    watch = WatchSettings(poll=0.001, quiet_poll=0.01, health=0.01, timeout=0.2)
    settings = EngineSettings(url=f"unix:{tmp_path}/found.sock", watch=watch)

    async def run() -> None:
        process = found()
        async with engine(settings, lambda state: None) as it:
            await until(lambda: it.state.ready)
            process.send_signal(signal.SIGSTOP)
            await until(lambda: it.state.dead)
            process.send_signal(signal.SIGCONT)
            await until(lambda: it.state.ready)

    asyncio.run(run())
