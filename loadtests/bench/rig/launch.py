"""Starts the mock worker and the proxies, each on its core, and ends them whatever happens."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rig import http
from rig.processes import stop, tree
from rig.proxies import BENCH, PROXY_CORE, REPOSITORY, RIG_CORE, RUN_DIR, Proxy

WORKER_PORT = 19000
START_LIMIT_S = 180.0


class CannotStart(Exception):  # noqa: N818 - says it all
    """A process did not come up; the message says where to look."""


class Running:
    """A proxy that is up. Its processes are those it was started with and all their descendants."""

    def __init__(self, proxy: Proxy, processes: "list[subprocess.Popen[bytes]]") -> None:
        self.proxy = proxy
        self._processes = processes

    @property
    def pids(self) -> list[int]:
        return [pid for process in self._processes for pid in tree(process.pid)]

    @property
    def ended(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    def stop(self) -> None:
        for process in reversed(self._processes):
            stop(process)


class Worker:
    """The mock worker."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.pid = process.pid

    def pace(self, first_token_ms: float, token_ms: float) -> None:
        http.get(WORKER_PORT, f"/config?ttft_ms={first_token_ms}&itl_ms={token_ms}")

    def counters(self) -> dict[str, int]:
        found: dict[str, int] = http.get_json(WORKER_PORT, "/stats")
        return found


def exit_on_sigterm() -> None:
    """Make a SIGTERM unwind this program, so that what it started is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def build_tools() -> None:
    """Compile the mock worker and the load generator, if they are older than their sources."""
    subprocess.run(["make", "-s", "-C", str(BENCH)], check=True)


@contextmanager
def mock_worker() -> Iterator[Worker]:
    build_tools()
    if http.taken(WORKER_PORT):
        raise CannotStart(f"port {WORKER_PORT} is taken: another benchmark is running")
    process = subprocess.Popen([BENCH / "mockworker", "--port", str(WORKER_PORT), "--cpu", str(RIG_CORE)])
    try:
        _wait(lambda: bool(http.get_json(WORKER_PORT, "/stats")), [process], "mockworker", 5)
        yield Worker(process)
    finally:
        stop(process)


def start(proxy: Proxy) -> Running:
    """Start a proxy on its core; returns once a completion went through it."""
    if http.taken(proxy.port):
        raise CannotStart(f"port {proxy.port} is taken: a proxy left over from another run?")
    RUN_DIR.mkdir(parents=True, exist_ok=True)
    log = RUN_DIR / f"{proxy.name}.log"
    processes: list[subprocess.Popen[bytes]] = []
    running = Running(proxy, processes)
    try:
        with log.open("wb") as output:
            for command in proxy.commands:
                processes.append(_launch(command, proxy, output.fileno()))  # noqa: PERF401 - one may fail
        _wait(lambda: http.completes(proxy.port, proxy.headers), processes, f"{proxy.name} (see {log})", START_LIMIT_S)
    except BaseException:
        running.stop()
        raise
    return running


def _launch(command: tuple[str, ...], proxy: Proxy, output: int) -> "subprocess.Popen[bytes]":
    if not Path(command[0]).exists():
        raise CannotStart(f"{proxy.name}: {command[0]} does not exist")
    return subprocess.Popen(
        ["taskset", "-c", str(PROXY_CORE), *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=REPOSITORY,
        env={**os.environ, **proxy.env},
        start_new_session=True,
    )


def _wait(able: Callable[[], bool], processes: "list[subprocess.Popen[bytes]]", name: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for process in processes:
            if process.poll() is not None:
                raise CannotStart(f"{name}: exited with {process.returncode}")
        with suppress(OSError):
            if able():
                return
        time.sleep(0.05)
    raise CannotStart(f"{name}: no completion within {seconds:g} s")
