#!/usr/bin/env python3
"""Put an open-loop load on an OpenAI-style endpoint and report latencies from the scheduled send time.

loadtests/load.py --url http://127.0.0.1:8000 --rate 100 --duration 30 --warmup 5 --json run.json
"""

import asyncio
import gc
import resource
import signal
import socket
import ssl
import sys
from pathlib import Path

import orjson
import uvloop
from openloop.connections import Endpoint
from openloop.figures import errors_of, figures_of, record_line
from openloop.options import Options, parse_options
from openloop.run import Result, Run
from openloop.table import table

SPARE_FILES = 64


def main() -> int:
    """Run as the command line says; returns the exit status."""
    options = parse_options(sys.argv[1:], tty=sys.stderr.isatty())
    if trouble := _allow_files(options.connections + SPARE_FILES):
        print(f"load.py: {trouble}", file=sys.stderr)
        return 2
    try:
        endpoint = _resolve(options)
    except OSError as error:
        print(f"load.py: {options.server_name}: {error}", file=sys.stderr)
        return 2
    # A collection among a million live records would stall the loop; nothing in a run makes cycles.
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(_run(options, endpoint))
    _report(options, result)
    return 1 if _too_many_errors(options, result) else 0


async def _run(options: Options, endpoint: Endpoint) -> Result:
    run = Run(options, endpoint, on_second=_show_progress if options.progress else None)
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)  # a second one kills
        run.interrupt()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    return await run.measure()


def _show_progress(run: Run) -> None:
    kinds = " ".join(f"{kind} {count}" for kind, count in sorted(run.outcomes.items()))
    print(f"{run.elapsed:6.0f} s  sent {len(run.records)}  open {run.in_flight}  {kinds}", file=sys.stderr, flush=True)


def _report(options: Options, result: Result) -> None:
    figures = figures_of(options, result)
    print(table(figures), flush=True)
    if options.json_file:
        Path(options.json_file).write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2) + b"\n")
    if options.records_file:
        with Path(options.records_file).open("wb") as file:
            for record in result.records:
                file.write(orjson.dumps(record_line(record, result.phase_starts[0])) + b"\n")


def _too_many_errors(options: Options, result: Result) -> bool:
    errors, requests = errors_of(result)
    return errors > options.max_errors * (requests if options.max_errors_is_share else 1)


def _resolve(options: Options) -> Endpoint:
    """Look the name up once, so that no request waits for a resolver."""
    found = socket.getaddrinfo(options.server_name, options.port, type=socket.SOCK_STREAM)
    tls = ssl.create_default_context() if options.tls else None
    return Endpoint(str(found[0][4][0]), options.port, options.server_name, tls)


def _allow_files(wanted: int) -> str | None:
    """Raise the limit on open files to `wanted`; what is in the way, if it cannot be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted) if hard >= 0 else hard))
        except (OSError, ValueError) as error:
            return f"{wanted} open files are needed and the limit is {soft}: {error}; lower --connections"
    return None


if __name__ == "__main__":
    sys.exit(main())
