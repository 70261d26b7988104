"""One measurement: one scenario against one proxy (or the worker itself), with the CPU that it took."""

import json
import os
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from rig.launch import WORKER_PORT, Running, Worker
from rig.processes import core_busy, cpu_seconds, resident_mib
from rig.proxies import BENCH, PROXY_CORE, RIG_CORE
from rig.scenarios import Scenario

Measurement = dict[str, Any]
_WORST_GAP_MS = 250  # the generator wakes every 10 ms: a gap like this means that something else had its core


@dataclass(frozen=True, slots=True)
class Mark:
    """The clocks as the measured window opens or closes."""

    moment: float
    proxy_cpu: float
    rig_cpu: float
    busy: dict[int, float]


def measure(
    scenario: Scenario, worker: Worker, running: Running | None, *, scale: float = 1.0, dump: str | None = None
) -> Measurement:
    """Measure once; `running` is None for the worker itself. `dump` names a file for the raw latencies."""
    worker.pace(scenario.first_token_ms, scenario.token_ms)
    port = running.proxy.port if running else WORKER_PORT
    # A stream takes 1.3 s: half its warm-up must be left, or all streams are still in step.
    warmup = max(scenario.warmup * min(scale, 1), 1.5 if scenario.token_ms else 0.4)
    command = [str(BENCH / "loadgen"), "--cpu", str(RIG_CORE)]
    command += scenario.arguments(port, max(1.0, scenario.seconds * scale), warmup)
    for header in running.proxy.headers if running else ():
        command += ["--header", header]
    if dump:
        command += ["--dump", dump]
    before = worker.counters()
    marks: dict[str, Mark] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as generator:
        assert generator.stdout and generator.stderr
        for line in generator.stderr:
            marks[line.strip()] = _mark(running, [worker.pid, generator.pid, os.getpid()])
        output = generator.stdout.read()
    if generator.returncode or not output:
        raise RuntimeError(f"loadgen ended with {generator.returncode}: {'; '.join(marks)}")
    after = worker.counters()
    seen = _measurement(scenario, running, json.loads(output), marks["window-start"], marks["window-end"])
    seen["keeps_up"] = keeps_up(seen, scenario)
    seen["worker"] = {name: after[name] - before[name] for name in ("conns_accepted", "requests", "aborted")}
    return seen


def measure_undisturbed(
    scenario: Scenario, worker: Worker, running: Running | None, *, scale: float = 1.0
) -> Measurement:
    """Measure, again (twice at most) when other work on the machine stopped the measurement."""
    for attempt in range(3):
        seen = measure(scenario, worker, running, scale=scale)
        seen["attempts"] = attempt + 1
        if not stalled(seen, closed_loop=scenario.closed_loop):
            break
    return seen


def stalled(seen: Measurement, *, closed_loop: bool) -> bool:
    """Whether the machine did something else: the generator was held up, or the proxy starved beside other work."""
    starved = closed_loop and seen["proxy"] != "direct" and seen["foreign_proxy_core"] > 0.6 and seen["cpu_share"] < 0.2
    return bool(starved or seen["load"]["max_gap_ms"] > _WORST_GAP_MS)


def keeps_up(seen: Measurement, scenario: Scenario) -> bool:
    """Whether the offered load was carried."""
    load = seen["load"]
    if load["failed"] or load["unfinished"]:
        return False
    if scenario.per_second is None:
        return True
    carried = load["tokens_per_s"] if scenario.mode == "stream" else load["rps"]
    return bool(carried > 0.8 * scenario.per_second)


def _mark(running: Running | None, rig: list[int]) -> Mark:
    moment = time.monotonic()
    return Mark(moment, cpu_seconds(running.pids) if running else 0.0, cpu_seconds(rig), core_busy())


def _measurement(
    scenario: Scenario, running: Running | None, load: dict[str, Any], start: Mark, end: Mark
) -> Measurement:
    between = end.moment - start.moment
    # The marks are read a little after the window's ends: scaled to what the window itself took.
    cpu = (end.proxy_cpu - start.proxy_cpu) * load["window_s"] / between

    def foreign(core: int, own: float) -> float:
        return round(max(0.0, (end.busy[core] - start.busy[core] - own) / between), 3)

    pids = running.pids if running else []
    return {
        "proxy": running.proxy.name if running else "direct",
        "scenario": scenario.name,
        "time": time.time(),
        "cpu_s": cpu,
        "cpu_share": cpu / load["window_s"],
        "cpu_us_per_request": cpu * 1e6 / load["ok"] if load["ok"] else None,
        "cpu_us_per_token": cpu * 1e6 / load["tokens"] if load["tokens"] else None,
        "rss_mib": resident_mib(pids),
        "rss_peak_mib": resident_mib(pids, "VmHWM"),
        "foreign_proxy_core": foreign(PROXY_CORE, end.proxy_cpu - start.proxy_cpu),
        "foreign_rig_core": foreign(RIG_CORE, end.rig_cpu - start.rig_cpu),
        "load": load,
    }
