"""`tailrace serve`: run the gateway or sidecar that a file describes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

import uvloop
from tailrace.proxy import logs
from tailrace.proxy.configuration import load
from tailrace.proxy.supervisor import Supervisor

NAME = "serve"
HELP = "run what a configuration file describes"


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("file", metavar="FILE", help="the YAML file of a gateway or worker")
    parser.add_argument("--log-level", choices=logs.CHOICES, help="least level shown on stderr (default: info)")


def run(options: argparse.Namespace) -> int:
    """Serve until a signal ends it."""
    logs.configure("supervisor", options.log_level)
    configuration = load(options.file)

    async def supervise() -> int:
        supervisor = Supervisor(configuration, announce)
        supervisor.obey_signals()
        return await supervisor.run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(supervise())


def announce(line: str) -> None:
    """Say something on stdout, at once."""
    # In one piece: unbuffered, `print` writes the line's end apart, and another process's line may come in between.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
