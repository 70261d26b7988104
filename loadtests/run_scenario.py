#!/usr/bin/env python3
"""Play scenarios: each file of loadtests/scenarios names a fleet, a load, what happens, and the bars that must hold.

loadtests/run_scenario.py kill
loadtests/run_scenario.py --short --json results steady kill
"""

from __future__ import annotations

import argparse
import gc
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "bench"))

import orjson
from scenario import network
from scenario.direct import Direction, direct
from scenario.place import Place, tailrace_command
from scenario.plan import PlanError, Scenario, read
from scenario.play import Report, shown
from scenario.table import summary_of, table

HERE = Path(__file__).parent
SCENARIOS = HERE / "scenarios"
GATEWAYS = ("tailrace", "litellm", "vllm-router", "production-stack")
NO_START = 2


def main() -> int:
    """Play what the command line names; the worst exit status of all."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        scenarios = [read(_file(name), short=options.short) for name in options.scenario]
    except PlanError as error:
        print(error, file=sys.stderr)
        return NO_START
    if len(scenarios) * len(options.gateway) == 1:
        return _alone(scenarios[0], options)
    return _each(options)


def _each(options: argparse.Namespace) -> int:
    """Each play in a process of its own: a network, and what a run has left in memory, end with it."""
    folder = options.json or Path(tempfile.mkdtemp(prefix="tailrace-scenarios-"))
    statuses, began = [], time.monotonic()
    for name in options.scenario:
        for gateway in options.gateway:
            own = [sys.executable, str(Path(__file__)), str(_file(name)), "--gateway", gateway, "--json", str(folder)]
            own += [f"--{flag}={getattr(options, flag)}" for flag in ("tailrace", "capacity", "quiet", "tries")]
            own += ["--short"] * options.short + ["--keep"] * options.keep
            statuses.append(subprocess.run(own).returncode)
            print(flush=True)
    files = [folder / f"{_file(name).stem}-{gateway}.json" for name in options.scenario for gateway in options.gateway]
    print(summary_of([orjson.loads(file.read_bytes()) for file in files if file.exists()]))
    print(f"{len(statuses)} plays in {time.monotonic() - began:.0f} s")
    if options.json is None:
        shutil.rmtree(folder)
    return max(statuses)


def _alone(scenario: Scenario, options: argparse.Namespace) -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    # A collection among thousands of live records would stall the loop; nothing in a play makes cycles that grow.
    gc.disable()
    why_not = network.isolate()
    if why_not is not None:
        print(f"no network of its own ({why_not}): hosts cannot be cut off, SIGSTOP stands in for it", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="tailrace-scenario-"))
    try:
        place = Place(folder, why_not is None, tailrace_command(options.tailrace))
        direction = Direction(options.gateway[0], options.capacity, float(options.quiet), int(options.tries))
        report = direct(scenario, place, direction)
        if isinstance(report, Report):
            _tell(report, options)
            return report.status
        print(f"{scenario.name}: {report}", flush=True)
        return NO_START
    finally:
        if options.keep:
            print(f"logs and settings are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _tell(report: Report, options: argparse.Namespace) -> None:
    whole = shown(report)
    print(table(whole), flush=True)
    if options.json is not None:
        options.json.mkdir(parents=True, exist_ok=True)
        file = options.json / f"{report.scenario.name}-{options.gateway[0]}.json"
        file.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2) + b"\n")


def _file(name: str) -> Path:
    return Path(name) if name.endswith(".yaml") else SCENARIOS / f"{name}.yaml"


def _options() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        prog="run_scenario.py",
        description="Play scenarios and hold their bars against what was measured.",
        epilog="Exit status: 0 every bar holds; 1 one does not; 2 it could not be played; 3 void.",
    )
    names = ", ".join(sorted(path.stem for path in SCENARIOS.glob("[!_]*.yaml")))
    p.add_argument("scenario", nargs="+", help=f"a file, or one of {names}")
    p.add_argument(
        "--short", action="store_true", help="the short form of each: fewer requests, the same bars for the rest"
    )
    p.add_argument("--gateway", nargs="+", choices=GATEWAYS, default=["tailrace"], help="default: tailrace")
    p.add_argument("--json", type=Path, metavar="FOLDER", help="write the figures there, a file a play")
    p.add_argument(
        "--tailrace",
        default="source",
        metavar="COMMAND",
        help="compiled (the wheel's), source (this tree's, the default), or the path of another",
    )
    p.add_argument(
        "--capacity",
        type=Path,
        default=HERE / "results" / "capacity.json",
        metavar="FILE",
        help="what the fleets can carry; measured, and kept there, where it does not say",
    )
    p.add_argument(
        "--quiet", type=float, default=20.0, metavar="S", help="wait so long at most for the machine to be idle"
    )
    p.add_argument(
        "--tries", type=int, default=1, metavar="N", help="play a void run again, up to so many times in all"
    )
    p.add_argument("--keep", action="store_true", help="keep the logs and settings")
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
