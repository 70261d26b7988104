#!/usr/bin/env python3
"""How much latency a proxy adds at a light load: scenario S2 in long windows, pooled.

loadtests/bench/added_latency.py                                  3 windows of 60 s each
loadtests/bench/added_latency.py --only direct,naive --rounds 2 --seconds 10

The windows of the proxies take turns. Added latency is a quantile through the proxy less the same quantile
of the worker alone. Every figure has a 95% interval, and so has the difference between each two proxies.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

from rig.launch import CannotStart, Running, exit_on_sigterm, mock_worker, start
from rig.measure import measure
from rig.pooled import Interval, Pool, differences
from rig.proxies import BENCH, PROXIES, RIG_CORE
from rig.scenarios import SCENARIOS

DIRECT = "direct"
DEFAULT = (DIRECT, "tailrace", "vllm-router")
QUANTILES = {"p50": 0.5, "p99": 0.99}
RATE = 200
REDRAWS = 1000
RESULTS = BENCH.parent / "results"


def main() -> int:
    """Run as the command line says; 1 when a proxy could not be started or failed requests."""
    options = _options()
    exit_on_sigterm()
    os.sched_setaffinity(0, {RIG_CORE})
    try:
        windows, failed = _windows(options.only, options.rounds, options.seconds)
    except CannotStart as error:
        print(f"added_latency.py: {error}", file=sys.stderr)
        return 1
    pools = {name: Pool(seen, RATE) for name, seen in windows.items()}
    found = _compare(pools)
    _print(pools, found)
    path = Path(options.out) if options.out else RESULTS / f"added-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {pair: {q: (i.value, i.low, i.high) for q, i in row.items()} for pair, row in found.items()}
    path.write_text(json.dumps({"argv": sys.argv[1:], "failed": failed, "differences_ns": stored}, indent=1))
    print(f"\nstored in {path}")
    for name, count in failed.items():
        print(f"added_latency.py: {name}: {count} requests failed", file=sys.stderr)
    return 1 if failed else 0


def _windows(names: list[str], rounds: int, seconds: float) -> tuple[dict[str, list[list[int]]], dict[str, int]]:
    """The raw latencies of each window of each proxy, and how many requests failed."""
    scenario = SCENARIOS["S2"]
    windows: dict[str, list[list[int]]] = {name: [] for name in names}
    failed: dict[str, int] = {}
    with mock_worker() as worker, ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        running: dict[str, Running | None] = {DIRECT: None}
        for name in names:
            if name != DIRECT:
                proxy = running[name] = start(PROXIES[name])
                stack.callback(proxy.stop)
        dump = Path(folder) / "latencies"
        for number in range(rounds):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                scale = seconds / scenario.seconds
                seen = measure(scenario, worker, running[name], scale=scale, dump=str(dump))
                windows[name].append([int(line) for line in dump.read_text().split()])
                load = seen["load"]
                if load["failed"] or load["unfinished"]:
                    failed[name] = failed.get(name, 0) + load["failed"] + load["unfinished"]
                foreign = f"{seen['foreign_proxy_core']:.0%}/{seen['foreign_rig_core']:.0%}"
                print(f"round {number} {name:<12} {_line(load['latency_us'])}  foreign {foreign}", flush=True)
    return windows, failed


def _compare(pools: dict[str, Pool]) -> dict[str, dict[str, Interval]]:
    found = {}
    others = [name for name in pools if name != DIRECT]
    pairs = [(name, DIRECT) for name in others if DIRECT in pools] + list(combinations(others, 2))
    for one, other in pairs:
        intervals = differences(pools[one], pools[other], list(QUANTILES.values()), redraws=REDRAWS, seed=1)
        found[f"{one} - {other}"] = dict(zip(QUANTILES, intervals, strict=True))
    return found


def _print(pools: dict[str, Pool], found: dict[str, dict[str, Interval]]) -> None:
    print(f"\n{'us':<28}{'samples':>9}" + "".join(f"{name:>9}" for name in QUANTILES))
    for name, pool in pools.items():
        values = "".join(f"{value / 1e3:>9.0f}" for value in pool.quantiles(list(QUANTILES.values())))
        print(f"{name:<28}{pool.count:>9}{values}")
    print("\nadded, or between two proxies, us, with 95% interval")
    for pair, row in found.items():
        cells = (f"{q} {i.value / 1e3:+8.0f} [{i.low / 1e3:+.0f}, {i.high / 1e3:+.0f}]" for q, i in row.items())
        print(f"{pair:<28} " + "   ".join(cells))


def _line(latency: dict[str, float]) -> str:
    return "  ".join(f"{name} {latency.get(name, 0):>7.0f} us" for name in QUANTILES)


def _options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [name for name in DEFAULT if name == DIRECT or PROXIES[name].installed]
    p.add_argument("--only", default=",".join(usual), metavar="NAMES", help=f"{DIRECT}, {', '.join(PROXIES)}")
    p.add_argument("--rounds", type=int, default=3, help="windows of each; default: %(default)s")
    p.add_argument("--seconds", type=float, default=60, help="of a window; default: %(default)s")
    p.add_argument("--out", metavar="FILE", help="default: a dated file in loadtests/results")
    options = p.parse_args()
    options.only = options.only.split(",")
    for name in options.only:
        if name != DIRECT and name not in PROXIES:
            p.error(f"unknown: {name}")
    if options.rounds < 1 or options.seconds < 1:
        p.error("--rounds and --seconds must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
