"""Processes as the kernel sees them: trees, CPU clocks, memory, the load of each core."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_CPUCLOCK_SCHED = 2


def tree(root: int) -> list[int]:
    """A process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    todo = [root]
    while todo:
        pid = todo.pop()
        if (PROC / str(pid)).exists():
            found.append(pid)
        todo += children.get(pid, [])
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of all threads of the processes, those that ended included.

    The kernel's clock of a process counts nanoseconds, where /proc/PID/stat counts hundredths: at a
    twentieth of a core the latter would be wrong by several per cent over a window of seconds.
    """
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    return total / 1e9


def resident_mib(pids: Iterable[int], key: str = "VmRSS") -> float:
    """Resident memory now (VmRSS), or at its highest (VmHWM)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            found = re.search(rf"^{key}:\s+(\d+) kB", (PROC / str(pid) / "status").read_text(), re.MULTILINE)
            total += int(found.group(1)) if found else 0
    return total / 1024


def core_busy() -> dict[int, float]:
    """Seconds that each core has been busy since boot."""
    busy = {}
    for line in (PROC / "stat").read_text().splitlines():
        if found := re.match(r"cpu(\d+) (.*)", line):
            user, nice, system, _, _, irq, softirq, *_ = map(int, found.group(2).split())
            busy[int(found.group(1))] = (user + nice + system + irq + softirq) / _TICKS
    return busy


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its descendants, by their ids: asked first, killed after 3 s."""
    pids = tree(process.pid)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            if ended and not any((PROC / str(pid)).exists() for pid in pids if pid != process.pid):
                return
            time.sleep(0.02)
