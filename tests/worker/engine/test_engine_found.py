"""An engine that somebody else runs: followed, and never started or ended."""

import asyncio
import signal
import subprocess

import pytest
from engine_launched import WATCH, Told
from fakes import until
from tailrace.worker.engine.launch import engine
from tailrace.worker.engine.settings import EngineSettings, WatchSettings
from tailrace.worker.engine.state import Phase


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
