"""Real vLLM servers for tests: started in a session of their own, found process by process, killed as a group."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VLLM = os.environ.get("TAILRACE_TEST_VLLM", "")
MODEL = os.environ.get("TAILRACE_TEST_MODEL", "")
KEY = "a-key-that-only-the-gateway-holds"
SEATS = 6
QUEUED = 8
"""Running and waiting requests together, above which the engine refuses."""
START_LIMIT = 240.0
FLAGS = (
    *("--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "16384", "--enforce-eager"),
    *("--max-num-seqs", str(SEATS), "--max-num-queued-reqs", str(QUEUED), "--api-key", KEY),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--enable-request-id-headers"),
)
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Two engines on two cores: what computes leaves something to the servers before it, whose tokens come in bursts
    # otherwise.
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # What a random model says makes no less sense behind the positions that it was made for.
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
}
LAUNCHED: dict[str, Any] = {
    "model": MODEL,
    "executable": VLLM,
    "args": {
        "served-model-name": "tiny",
        "dtype": "float32",
        "max-model-len": 2048,
        "max-num-seqs": 4,
        "enforce-eager": True,
        "api-key": KEY,
    },
    "env": QUIET,
}
"""What `engine: {vllm: ...}` says where a sidecar launches one."""


class Vllm:
    """One server; `stop` leaves no process of its session behind."""

    def __init__(self, flags: Sequence[str], log: Path) -> None:
        self.flags = tuple(flags)
        self.log = log
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [VLLM, "serve", MODEL, "--host", "127.0.0.1", "--port", str(self.port), *FLAGS, *flags]
        with log.open("wb") as out:
            self._server = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=environ | QUIET, start_new_session=True
            )
        self._await_health()

    def _await_health(self) -> None:
        end = time.monotonic() + START_LIMIT
        while not self.healthy:
            if self._server.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError("vLLM did not start:\n" + self.log.read_text(errors="replace")[-4000:])
            time.sleep(0.2)

    @property
    def gone(self) -> bool:
        """Whether the server's process has ended: until then it may answer, with 500 where its core is dead."""
        return self._server.poll() is not None

    @property
    def healthy(self) -> bool:
        """Whether its health check says so."""
        return self._server.poll() is None and answers(self.url + "/health")

    @property
    def api_server(self) -> int:
        """The process that speaks HTTP."""
        return self._server.pid

    @property
    def cores(self) -> list[int]:
        """The processes that compute."""
        return [pid for pid in self.members() if b"EngineCore" in command_line(pid)]

    def members(self) -> list[int]:
        """Every process of its session."""
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in pids if session_of(pid) == self.api_server and command_line(pid)]

    def kill_core(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to what computes, and to nothing else."""
        cores = self.cores
        assert cores, "no process of the session is called EngineCore"
        for pid in cores:
            os.kill(pid, number)

    def kill_server(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to what speaks HTTP, and to nothing else."""
        os.kill(self.api_server, number)

    def stop(self) -> None:
        """Kill everything that is left of it."""
        for pid in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._server.wait()


class Engines:
    """At most one server at a time; one that is still well is used again."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._started = 0
        self._present: Vllm | None = None

    def running(self, *flags: str) -> Vllm:
        """A healthy server with these flags on top of the common ones."""
        present = self._present
        if present is not None and (present.flags != flags or not present.healthy):
            self.stop()
        if self._present is None:
            self._started += 1
            self._present = Vllm(flags, self._logs / f"vllm-{self._started}.log")
        return self._present

    def stop(self) -> None:
        """Stop the present one."""
        if self._present is not None:
            self._present.stop()
            self._present = None


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Whether a GET gets a 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def session_of(pid: int) -> int:
    """A process's session, 0 where it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def command_line(pid: int) -> bytes:
    """What a process says that it is; empty for one that is dead or gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
