"""Process trees: found, timed, started and ended."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rig import launch
from rig.processes import core_busy, cpu_seconds, resident_mib, stop, tree
from rig.proxies import PROXIES, Proxy

FAMILY = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"


def family(script: str = FAMILY) -> "tuple[subprocess.Popen[bytes], int]":
    """A process and the pid of its child."""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout
    child = int(parent.stdout.readline())
    parent.stdout.close()
    return parent, child


def test_a_tree_is_found_and_ended_whole() -> None:
    parent, child = family()
    assert sorted(tree(parent.pid)) == sorted([parent.pid, child])
    assert resident_mib([parent.pid, child]) > resident_mib([child]) > 0
    stop(parent)
    assert parent.poll() is not None
    assert not Path(f"/proc/{child}").exists()
    assert cpu_seconds([parent.pid, child]) == 0


def test_the_cpu_clock_of_a_process_is_the_one_it_sees_itself() -> None:
    before = time.process_time()
    seen = cpu_seconds([os.getpid()])
    assert before <= seen <= time.process_time()


def test_every_core_has_a_load() -> None:
    busy = core_busy()
    assert len(busy) >= len(os.sched_getaffinity(0))
    assert all(seconds >= 0 for seconds in busy.values())


@pytest.mark.parametrize("command", [("/bin/false",), ("/nonexistent/program",)])
def test_a_proxy_that_does_not_come_up_is_named(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "RUN_DIR", tmp_path)
    with pytest.raises(launch.CannotStart, match="broken"):
        launch.start(Proxy("broken", 1, (command,)))


def test_what_came_up_is_ended_when_the_next_part_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "RUN_DIR", tmp_path)
    started: list[subprocess.Popen[bytes]] = []
    begin = launch._launch

    def remembered(*arguments: object) -> "subprocess.Popen[bytes]":
        started.append(begin(*arguments))  # type: ignore[arg-type]
        return started[-1]

    monkeypatch.setattr(launch, "_launch", remembered)
    with pytest.raises(launch.CannotStart):
        launch.start(Proxy("half", 1, (("/bin/sleep", "60"), ("/nonexistent/program",))))
    assert [process.poll() is not None for process in started] == [True]


def test_every_proxy_has_a_port_of_its_own() -> None:
    assert len({proxy.port for proxy in PROXIES.values()}) == len(PROXIES)
