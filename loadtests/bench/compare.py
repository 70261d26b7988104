#!/usr/bin/env python3
"""Measure Tailrace and other proxies in front of the same mock worker, in turn, and compare their CPU.

loadtests/bench/compare.py --quick                            a minute, one round
loadtests/bench/compare.py                                    every scenario, five rounds
loadtests/bench/compare.py --only direct,tailrace --scenario S1,S3 --rounds 3
loadtests/bench/compare.py --table FILE...                    the tables of stored results
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rig.launch import CannotStart, Running, Worker, exit_on_sigterm, mock_worker, start
from rig.measure import Measurement, measure_undisturbed
from rig.proxies import BENCH, PROXIES, RIG_CORE
from rig.scenarios import SCENARIOS
from rig.summary import cost, ratios, tables

DIRECT = "direct"
# It carries so few requests that most scenarios are overload to it.
ONLY_IF_NAMED = ("litellm",)
QUICK_PROXIES = (DIRECT, "tailrace", "naive", "vllm-router")
QUICK_SCENARIOS = ("S1", "S2", "S3", "S4", "S5")
QUICK_SCALE = 0.16
# With its CPU at nought, the worker alone is of interest only where a latency or a delay is compared.
QUICK_DIRECT = ("S2", "S3")
RESULTS = BENCH.parent / "results"


def main() -> int:
    """Run as the command line says; 1 when a proxy could not be started or measured."""
    options = _options()
    if options.table:
        print(_text([m for name in options.table for m in json.loads(Path(name).read_text())["measurements"]]))
        return 0
    if len(os.sched_getaffinity(0)) < 2:
        print("compare.py: two cores are needed, one for the proxy and one for the rig", file=sys.stderr)
        return 2
    exit_on_sigterm()
    os.sched_setaffinity(0, {RIG_CORE})
    path = Path(options.out) if options.out else RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    measurements: list[Measurement] = []
    faults: dict[str, str] = {}
    try:
        with mock_worker() as worker, ExitStack() as stack:
            running = _start_all(options.only, stack, faults)
            _measure_all(options, worker, running, measurements, faults)
    except CannotStart as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 1
    finally:
        if measurements:
            path.write_text(
                json.dumps({"argv": sys.argv[1:], "faults": faults, "measurements": measurements}, indent=1)
            )
    print(f"\n{_text(measurements)}\n\nstored in {path}")
    for name, fault in faults.items():
        print(f"compare.py: {name} was not measured: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _start_all(names: Sequence[str], stack: ExitStack, faults: dict[str, str]) -> list[Running | None]:
    """Start the proxies; None stands for none. All stay up, idle but for their turns."""
    running: list[Running | None] = []
    for name in names:
        if name == DIRECT:
            running.append(None)
            continue
        try:
            proxy = start(PROXIES[name])
        except CannotStart as error:
            faults[name] = str(error)
            continue
        stack.callback(proxy.stop)
        running.append(proxy)
    return running


def _measure_all(
    options: argparse.Namespace,
    worker: Worker,
    running: list[Running | None],
    measurements: list[Measurement],
    faults: dict[str, str],
) -> None:
    """Each scenario meets every proxy before the next one: what disturbs the machine disturbs all alike."""
    for number in range(options.rounds):
        shift = number % max(1, len(running))
        for name in options.scenario:
            for proxy in running[shift:] + running[:shift]:
                if proxy is None and options.quick and name not in QUICK_DIRECT:
                    continue
                if proxy is not None and (proxy.ended or proxy.proxy.name in faults):
                    faults.setdefault(proxy.proxy.name, "it ended during the run")
                    continue
                try:
                    seen = measure_undisturbed(SCENARIOS[name], worker, proxy, scale=options.scale)
                except RuntimeError as error:
                    faults[proxy.proxy.name if proxy else DIRECT] = str(error)
                    continue
                seen["round"] = number
                measurements.append(seen)
                print(_line(seen), flush=True)


def _line(seen: Measurement) -> str:
    load = seen["load"]
    key = cost(SCENARIOS[seen["scenario"]])
    spent = (
        f"{seen[key]:8.2f} {key.removeprefix('cpu_').replace('_per_', '/')}" if seen[key] is not None else "no answer"
    )
    return (
        f"round {seen['round']} {seen['scenario']:<4}{seen['proxy']:<12} {spent:<22} ok {load['ok']:>6}"
        f" failed {load['failed']:<3} p50 {load['latency_us'].get('p50', 0):>8.0f} us"
        f"  foreign {seen['foreign_proxy_core']:.0%}/{seen['foreign_rig_core']:.0%}"
        + (f"  {load['first_error'][:100]}" if load["failed"] else "")
    )


def _text(measurements: Sequence[Measurement]) -> str:
    parts = [tables(measurements), ratios(measurements, "tailrace"), ratios(measurements, "sidecar")]
    return "\n\n".join(part for part in parts if part)


def _options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true", help="one round of short windows against the nearest peers")
    p.add_argument("--only", metavar="NAMES", help=f"comma-separated: {DIRECT}, {', '.join(PROXIES)}")
    p.add_argument("--scenario", metavar="NAMES", help=f"comma-separated: {', '.join(SCENARIOS)}")
    p.add_argument("--rounds", type=int, help="default: 5, or 1 when quick")
    p.add_argument("--scale", type=float, help="scales each measured window; default: 1, or less when quick")
    p.add_argument("--out", metavar="FILE", help="default: a dated file in loadtests/results")
    p.add_argument("--table", nargs="+", metavar="FILE", help="print the tables of stored results, and stop")
    options = p.parse_args()
    known = (DIRECT, *PROXIES)
    wanted = QUICK_PROXIES if options.quick else [name for name in known if name not in ONLY_IF_NAMED]
    usual = [name for name in wanted if name == DIRECT or PROXIES[name].installed]
    options.only = options.only.split(",") if options.only else usual
    usual_scenarios = QUICK_SCENARIOS if options.quick else tuple(SCENARIOS)
    options.scenario = options.scenario.split(",") if options.scenario else list(usual_scenarios)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.scale = options.scale or (QUICK_SCALE if options.quick else 1.0)
    for name, names in [*((n, known) for n in options.only), *((s, tuple(SCENARIOS)) for s in options.scenario)]:
        if name not in names:
            p.error(f"unknown: {name} (known: {', '.join(names)})")
    return options


if __name__ == "__main__":
    sys.exit(main())
