"""Starting an engine and leaving nothing of it behind: real processes, real signals."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import uvloop
from engine_doubles import alive
from fakes import until
from tailrace.worker.engine import stragglers
from tailrace.worker.engine.command import Command
from tailrace.worker.engine.output import OutputRelay
from tailrace.worker.engine.process import EngineProcess

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    pid = os.fork()
    if pid:
        os.write(tell, f"{os.getpid()} {pid}".encode())
    time.sleep(600)
print("family", os.getpid(), os.read(ready, 100).decode(), flush=True)
time.sleep(600)
"""
UNIMPRESSED = STUBBORN.replace("signal.SIG_IGN", "lambda *_: print('asked to end', flush=True)")


def command(code: str, **env: str) -> Command:
    return Command(argv=(sys.executable, "-S", "-c", code), env={**os.environ, **env}, target="unix:/nowhere")


class Run:
    """An engine process with its output in `lines`."""

    def __init__(self) -> None:
        self.relay = OutputRelay("", lambda text: None)
        self.ends = 0

    async def start(self, what: Command, grace: float = 30.0) -> EngineProcess:
        return await EngineProcess.start(what, self.relay, grace, self._count)

    def _count(self) -> None:
        self.ends += 1

    async def family(self) -> list[int]:
        await until(lambda: any(line.startswith("family") for line in self.relay.tail))
        return [int(pid) for line in self.relay.tail if line.startswith("family") for pid in line.split()[1:]]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_polite_engine_ends_on_sigterm_and_leaves_no_zombie(loop):
    code = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(4))\nprint('up', flush=True)\ntime.sleep(600)"
    )

    async def run() -> None:
        engine = Run()
        process = await engine.start(command(code))
        await until(lambda: engine.relay.last == "up")
        await process.stop()
        assert await process.ended == 4
        assert engine.ends == 1
        assert not alive(process.pid)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def test_an_engine_stopped_as_soon_as_it_started_does_not_use_up_its_grace():
    async def run() -> None:
        engine = Run()
        for _ in range(10):
            process = await engine.start(command("import time; time.sleep(600)"), grace=600.0)
            await process.stop()

    asyncio.run(run())


def test_an_engine_that_ignores_sigterm_dies_with_all_its_family():
    async def run() -> None:
        engine = Run()
        process = await engine.start(command(STUBBORN), grace=0.05)
        family = await engine.family()
        assert len(family) == 3
        assert all(map(alive, family))
        await process.stop()
        assert await process.ended == -signal.SIGKILL
        assert not any(map(alive, family))

    asyncio.run(run())


def test_killing_now_does_not_wait_for_the_grace_even_after_a_polite_stop_began():
    async def run() -> None:
        engine = Run()
        process = await engine.start(command(UNIMPRESSED), grace=600.0)
        family = await engine.family()
        polite = asyncio.ensure_future(process.stop())
        await until(lambda: engine.relay.last == "asked to end")
        await process.stop(now=True)
        await polite
        assert not any(map(alive, family))

    asyncio.run(run())


def test_the_end_of_an_engine_is_told_at_once_and_its_orphans_are_ended():
    async def run() -> None:
        engine = Run()
        process = await engine.start(command(STUBBORN))
        leader, *orphans = await engine.family()
        os.kill(leader, signal.SIGKILL)
        await until(lambda: engine.ends == 1)
        assert await process.ended == -signal.SIGKILL
        await process.stop()
        assert not any(map(alive, orphans))
        assert engine.ends == 1

    asyncio.run(run())


def test_a_stopped_engine_is_ended():
    async def run() -> None:
        engine = Run()
        process = await engine.start(command(STUBBORN), grace=0.05)
        family = await engine.family()
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        await process.stop()
        assert not any(map(alive, family))

    asyncio.run(run())


def test_a_program_that_cannot_be_run_says_why():
    async def run() -> None:
        engine = Run()
        process = await engine.start(Command(argv=("/nowhere/vllm",), env={}, target="unix:/nowhere"))
        assert await process.ended == 127
        await process.stop()
        assert engine.relay.last == "cannot run /nowhere/vllm: No such file or directory"

    asyncio.run(run())


def test_an_exit_at_once_is_told_with_its_code_and_last_words():
    async def run() -> None:
        engine = Run()
        process = await engine.start(command("import sys; sys.stderr.write('no model'); sys.exit(3)"))
        assert await process.ended == 3
        await process.stop()
        assert engine.relay.last == "no model"

    asyncio.run(run())


def test_a_cancelled_stop_still_ends_the_engine():
    async def run() -> None:
        engine = Run()
        process = await engine.start(command(STUBBORN), grace=0.05)
        family = await engine.family()
        task = asyncio.ensure_future(process.stop())
        await asyncio.sleep(0)
        task.cancel()
        await until(lambda: not any(map(alive, family)))
        assert task.cancelled()
        await process.stop()

    asyncio.run(run())


def test_no_descriptor_is_left_open():
    def descriptors() -> set[str]:
        return {str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in os.listdir("/proc/self/fd") if int(fd) > 2}

    async def run() -> None:
        before = len(os.listdir("/proc/self/fd"))
        engine = Run()
        for code in ("pass", "import time; time.sleep(600)"):
            process = await engine.start(command(code))
            await process.stop()
        assert len(os.listdir("/proc/self/fd")) == before, descriptors()

    asyncio.run(run())


def test_a_killed_keeper_is_seen_and_its_work_is_done_for_it():
    async def run() -> None:
        engine = Run()
        process = await engine.start(command(STUBBORN))
        family = await engine.family()
        os.kill(int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        await process.ended
        assert engine.ends == 1
        await process.stop()
        await until(lambda: not any(map(running, family)))

    asyncio.run(run())


def running(pid: int) -> bool:
    """Exists and is no zombie: an orphan is reaped by whoever adopted it, perhaps later."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


SIDECAR = """
import asyncio, os, sys
from tailrace.worker.engine.command import Command
from tailrace.worker.engine.output import OutputRelay
from tailrace.worker.engine.process import EngineProcess

async def main():
    relay = OutputRelay("", lambda text: os.write(1, text))
    what = Command(argv=(sys.executable, "-S", "-c", os.environ["CODE"]), env=dict(os.environ), target="")
    process = await EngineProcess.start(what, relay, 0.05)
    print("keeper", open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[1], flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def sidecar():
    """A process that runs a stubborn engine: the process, its keeper's pid and the pids of the engine's family."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SIDECAR)], env={**os.environ, "CODE": STUBBORN}, stdout=subprocess.PIPE
    )
    words = dict(line.decode().split(maxsplit=1) for line in (process.stdout.readline(), process.stdout.readline()))
    family = [int(pid) for pid in words["family"].split()]
    yield process, int(words["keeper"]), family
    process.kill()
    process.wait()
    process.stdout.close()
    for pid in family:
        if running(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_killed_sidecar_leaves_nothing(sidecar):
    process, keeper, family = sidecar
    process.kill()
    asyncio.run(until(lambda: not any(map(running, [keeper, *family]))))


def test_an_engine_whose_sidecar_lives_is_no_orphan(sidecar):
    _, _, family = sidecar
    assert not set(family) & set(stragglers.orphans())
    assert set(family) <= {pid for pid, _ in stragglers.marked()}


def test_an_engine_of_another_pid_namespace_is_no_orphan():
    marks = {stragglers.MARK: stragglers.own_mark("run").replace("pid:[", "pid:[1").replace(f"/{os.getpid()}/", "/9/")}
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, env=marks)
    try:
        asyncio.run(until(lambda: process.pid in dict(stragglers.marked())))
        assert process.pid not in stragglers.orphans()
    finally:
        process.communicate()


def test_what_survives_sidecar_and_keeper_is_killed_by_the_next_sidecar(sidecar):
    process, keeper, family = sidecar
    os.kill(keeper, signal.SIGSTOP)
    process.kill()
    process.wait()
    os.kill(keeper, signal.SIGKILL)
    assert set(family) <= set(stragglers.kill_orphans())
    asyncio.run(until(lambda: not any(map(running, family))))
