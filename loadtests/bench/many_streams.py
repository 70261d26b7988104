#!/usr/bin/env python3
"""Open many slow streams through one proxy and report what each costs it in memory.

loadtests/bench/many_streams.py                         10,000 streams of one token a second through tailrace
loadtests/bench/many_streams.py --proxy naive --streams 2000

The streams are opened one after another at --ramp a second, and all stay open together until the last has been
for --hold seconds. Growth is the resident memory of the proxy's process tree then, less that before the first.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from rig.launch import CannotStart, Running, Worker, exit_on_sigterm, mock_worker, start
from rig.processes import cpu_seconds, resident_mib
from rig.proxies import BENCH, PROXIES, RIG_CORE

# A proxy holds two sockets a stream.
FILES_PER_STREAM = 2
SPARE_FILES = 100


@dataclass(slots=True)
class Seen:
    """What was read while the streams were open."""

    before_mib: float
    most_open: int = 0
    open_mib: float = 0.0
    open_since: float = 0.0
    cpu_at_open: float = 0.0
    cpu_share: float = 0.0


def main() -> int:
    """Run as the command line says; 1 when a stream failed or not all were open at once."""
    options = _options()
    exit_on_sigterm()
    if trouble := _allow_files(options.streams * FILES_PER_STREAM + SPARE_FILES):
        print(f"many_streams.py: {trouble}", file=sys.stderr)
        return 2
    os.sched_setaffinity(0, {RIG_CORE})
    try:
        with mock_worker() as worker:
            running = start(PROXIES[options.proxy])
            try:
                seen, load, after = _hold(options, worker, running)
            finally:
                running.stop()
    except CannotStart as error:
        print(f"many_streams.py: {error}", file=sys.stderr)
        return 1
    failed = load["failed"] + load["unfinished"]
    per_stream = (seen.open_mib - seen.before_mib) * 1024 / max(1, seen.most_open)
    print(
        f"{options.proxy}: {seen.most_open} of {options.streams} streams open at once, {options.interval:g} s a token"
    )
    print(f"RSS {seen.before_mib:.1f} MiB before, {seen.open_mib:.1f} with all open, {after:.1f} after")
    print(f"RSS growth {per_stream:.2f} KiB a stream; CPU with all open {seen.cpu_share:.0%} of a core")
    print(f"ok {load['ok']}, failed {failed} {load['failures'] or ''} {load['first_error']}".rstrip())
    delay = load["token_delay_us"]
    if delay["n"]:
        print(f"token delay p50 {delay['p50'] / 1e3:.2f} p99 {delay['p99'] / 1e3:.2f} max {delay['max'] / 1e3:.2f} ms")
    return 1 if failed or seen.most_open < options.streams else 0


def _hold(options: argparse.Namespace, worker: Worker, running: Running) -> tuple[Seen, dict[str, Any], float]:
    """Open the streams and watch them to their end; also returns the memory afterwards."""
    opening = options.streams / options.ramp
    tokens = math.ceil((opening + options.hold) / options.interval)
    lasting = tokens * options.interval
    worker.pace(options.interval * 1000, options.interval * 1000)
    command = [str(BENCH / "loadgen"), "--cpu", str(RIG_CORE), "--target", f"127.0.0.1:{running.proxy.port}"]
    command += ["--mode", "stream", "--rate", str(options.ramp), "--arrivals", "constant", "--warmup", "0"]
    # Half an interval less, so that rounding does not make it one stream too many.
    command += ["--duration", f"{opening - 0.5 / options.ramp:.4f}", "--max-conns", str(options.streams)]
    command += ["--tokens", str(tokens), "--drain", f"{lasting + 20:.0f}", "--timeout", f"{lasting + 20:.0f}"]
    seen = Seen(before_mib=resident_mib(running.pids))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as generator:
        assert generator.stdout
        while generator.poll() is None:
            _look(seen, worker, running)
            time.sleep(0.5)
        output = generator.stdout.read()
    if not output:
        raise CannotStart(f"loadgen ended with {generator.returncode}")
    return seen, json.loads(output), resident_mib(running.pids)


def _look(seen: Seen, worker: Worker, running: Running) -> None:
    """Remember the memory at the most streams open, and the CPU spent since they were."""
    active = worker.counters()["active"]
    pids = running.pids
    now, cpu = time.monotonic(), cpu_seconds(pids)
    if active > seen.most_open:
        seen.most_open, seen.open_since, seen.cpu_at_open = active, now, cpu
    if active == seen.most_open:
        seen.open_mib = max(seen.open_mib, resident_mib(pids))
        if now > seen.open_since:
            seen.cpu_share = (cpu - seen.cpu_at_open) / (now - seen.open_since)


def _allow_files(wanted: int) -> str | None:
    """Raise the limit on open files for this process and all it starts; what is in the way, if it cannot be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    enough = hard == resource.RLIM_INFINITY or hard >= wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard if enough else wanted))
    except (OSError, ValueError) as error:
        most = (max(soft, hard) - SPARE_FILES) // FILES_PER_STREAM
        return f"cannot raise the limit on open files from {soft} to {wanted}: {error}; at most --streams {most} here"
    return None


def _options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--proxy", default="tailrace", choices=list(PROXIES))
    p.add_argument("--streams", type=int, default=10_000, help="default: %(default)s")
    p.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between tokens; default: 1")
    p.add_argument("--ramp", type=float, default=500.0, metavar="PER_SECOND", help="streams opened; default: 500")
    p.add_argument("--hold", type=float, default=10.0, metavar="SECONDS", help="with all open; default: 10")
    options = p.parse_args()
    if min(options.streams, options.interval, options.ramp, options.hold) <= 0:
        p.error("all numbers must be above 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
