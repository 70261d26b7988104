#!/usr/bin/env python3
"""What each phase of each plugin takes of a call, timed inside a gateway under the load of S1.

The gateway with identity and money (money.yaml) serves in this process, its host's parts beside it, so run it with the
Python whose modules are to be timed:

.venv/compiled/bin/python loadtests/bench/phases.py
"""

import argparse
import asyncio
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import uvloop
from rig.launch import mock_worker
from rig.proxies import BENCH, PROXIES, PROXY_CORE, RIG_CORE
from tailrace.plugins.access_log import AccessLog
from tailrace.plugins.auth import Auth
from tailrace.plugins.billing import Billing
from tailrace.plugins.quota import Quota
from tailrace.plugins.route import Route

ADMISSION = ("on_open", "on_request")
PHASES = (*ADMISSION, "score_workers", "on_chosen", "on_answer", "on_ending", "on_complete")


def timed(method: Callable[..., Any], took: list[int]) -> Callable[..., Any]:
    """The same method, which notes how long it took, in nanoseconds."""
    now = time.perf_counter_ns

    @functools.wraps(method)
    def measured(*args: Any) -> Any:
        began = now()
        result = method(*args)
        took.append(now() - began)
        return result

    return measured


def timed_phase(phase: Any, took: list[int]) -> Any:
    """The same of a plugin's phase, also of one that names a compiled method."""
    if isinstance(phase, property):
        named: Any = phase.fget
        return property(lambda plugin: timed(named(plugin), took))
    return timed(phase, took)


async def served(connections: int, seconds: float) -> None:
    """Serve money.yaml in this process while the generator asks."""
    from tailrace.proxy.configuration import load
    from tailrace.proxy.gateway import running

    proxy = PROXIES["money"]
    async with running(load(BENCH / "money.yaml").settings):
        command = [str(BENCH / "loadgen"), "--cpu", str(RIG_CORE), "--target", f"127.0.0.1:{proxy.port}"]
        command += ["--mode", "unary", "--conc", str(connections), "--duration", str(seconds), "--warmup", "1"]
        command += [part for header in proxy.headers for part in ("--header", header)]
        quiet = asyncio.subprocess.DEVNULL
        generator = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
        if await generator.wait():
            sys.exit("the load generator failed")


def main() -> None:
    """Time them, and print the medians."""
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--connections", type=int, default=32, help="calls at once (default: %(default)s)")
    p.add_argument("--seconds", type=float, default=10.0, help="for so long (default: %(default)s)")
    options = p.parse_args()
    took: dict[tuple[str, str], list[int]] = {}
    for plugin in (Auth, Billing, Quota, Route, AccessLog):
        for phase in PHASES:
            method = vars(plugin).get(phase)
            if method is not None:
                took[plugin.__name__, phase] = found = []
                setattr(plugin, phase, timed_phase(method, found))
    os.sched_setaffinity(0, {PROXY_CORE})
    with tempfile.TemporaryDirectory(prefix="phases-") as state, mock_worker() as worker:
        os.environ["TAILRACE_BENCH_STATE"] = state
        worker.pace(0.0, 0.0)
        uvloop.run(served(options.connections, options.seconds))
    print(f"{'plugin':<12}{'phase':<16}{'calls':>8}{'p50 us':>9}{'p90 us':>9}")
    for (plugin, phase), found in took.items():
        found.sort()
        p50, p90 = (found[len(found) * part // 10] / 1000 for part in (5, 9))
        print(f"{plugin:<12}{phase:<16}{len(found):>8}{p50:>9.1f}{p90:>9.1f}")
    admission = sum(median(found) for (_, phase), found in took.items() if phase in ADMISSION)
    print(f"admission (on_open and on_request of all), sum of the medians: {admission / 1000:.1f} us")


if __name__ == "__main__":
    main()
