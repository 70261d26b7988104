"""The `tailrace` command: its own commands, and those that others install under the group `tailrace.commands`.

Exit codes: 0 well ended, 1 failed while running, 2 wrong configuration or arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from tailrace.proxy import registry
from tailrace.proxy.commands import check, demo, init, ledger, schema, serve, trace, version, workers
from tailrace.proxy.config import ConfigError
from tailrace.proxy.supervisor import Fatal

OWN: tuple[ModuleType, ...] = (serve, check, workers, trace, ledger, init, schema, demo, version)
_INSTALLED = {
    "cache": "count the kept answers of a running gateway, or throw some away",
    "keys": "create, list, rotate, revoke, disable and enable API keys",
    "sim": "run a simulated engine: vLLM's wire format, timing and failures, without a model",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    installed = registry.names("commands")
    if arguments and arguments[0] in installed:
        # They parse their own arguments, `--help` included.
        return int(registry.load("commands", arguments[0])(arguments[1:]))
    options = _parser(installed).parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except (Fatal, registry.UnknownName) as fault:
        print(f"tailrace: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read has seen enough, as `head` does. At its exit the interpreter would try once more, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _parser(installed: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailrace",
        description="An inference gateway that keeps the tail of the time to first token short.",
        epilog="`tailrace COMMAND --help` describes a command. Exit codes: 1 failed, 2 wrong configuration.",
    )
    parser.add_argument("--version", action="version", version=version.told(), help="print the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in OWN:
        told = (module.__doc__ or "").partition(": ")[2].strip()
        command = commands.add_parser(module.NAME, help=module.HELP, description=told[:1].upper() + told[1:])
        module.describe(command)
        command.set_defaults(run=module.run)
    for name in installed:
        commands.add_parser(name, help=_INSTALLED.get(name, "installed by another package"), add_help=False)
    return parser
