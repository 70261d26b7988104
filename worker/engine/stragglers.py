"""Engine processes whose sidecar is gone, found by a mark that every process of an engine inherits.

A keeper ends its engine when the sidecar dies. Only if sidecar and keeper are killed together can an engine stay
behind; the mark lets whoever comes next find it. It is an environment variable, so it follows through forks, new
sessions and new groups, and it names the owner by pid and start time within one pid namespace, so that nobody else's
engine is taken for an orphan.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MARK = "TAILRACE_ENGINE_OWNER"
KEEP_MARK = {"SPT_NOENV": "1"}
"""Without it, setproctitle, which vLLM's EngineCore and workers use, writes over the environment that /proc shows."""


def own_mark(run: str) -> str:
    """The mark for an engine of this process; `run` tells its runs apart."""
    return f"{_namespace('self')}/{os.getpid()}/{_started(os.getpid())}/{run}"


def orphans() -> list[int]:
    """Processes of engines whose owner no longer exists."""
    here = f"{_namespace('self')}/"
    found = []
    for pid, mark in marked():
        if mark.startswith(here):
            owner, _, rest = mark.removeprefix(here).partition("/")
            started = rest.partition("/")[0]
            if not owner.isdigit() or _started(int(owner)) != started:
                found.append(pid)
    return found


def kill_orphans(limit: float = 5.0) -> list[int]:
    """End what earlier sidecars left behind; returns the pids met."""
    return _kill(orphans, limit)


def kill_run(mark: str, limit: float = 5.0) -> list[int]:
    """End every process of one run of an engine, wherever it hid; returns the pids met."""
    return _kill(lambda: [pid for pid, found in marked() if found == mark], limit)


def marked() -> Iterator[tuple[int, str]]:
    """Every live process of ours that carries a mark, with the mark."""
    key = f"{MARK}=".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                environ = (entry / "environ").read_bytes()
                for pair in environ.split(b"\0") if key in environ else ():
                    if pair.startswith(key):
                        yield int(entry.name), pair.removeprefix(key).decode(errors="replace")


def _kill(search: Callable[[], list[int]], limit: float) -> list[int]:
    met: dict[int, None] = {}
    deadline = time.monotonic() + limit
    # Again until none is found: one may have forked while the first look was taken.
    while (found := search()) and time.monotonic() < deadline:
        met |= dict.fromkeys(found)
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return list(met)


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _namespace(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink().name
    except OSError:
        return ""
