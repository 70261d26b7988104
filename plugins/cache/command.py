"""`tailrace cache`: how much a running gateway keeps, and throwing some of it away.

It asks the gateway's admin port, whose token it takes from the environment where none is given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from tailrace.proxy.commands.admin_port import Admin, with_place
from tailrace.proxy.supervisor import Fatal

_CHOSEN: Final = ("tenant", "scope", "model", "prefix")
_ONLY_CACHE: Final = {"scope", "prefix"}
_PLUGINS: Final = {"cache": "", "semantic_cache": "semantic "}
"""Who keeps answers, and how their numbers begin."""
_NOT_THERE: Final = "here answers questions"
_SHARED: Final = "store_"
"""How the numbers of a store begin, which every process tells alike."""


def main(argv: Sequence[str]) -> int:
    """Run one action; the exit code."""
    options = parser().parse_args(argv)
    try:
        print(run(options))
    except Fatal as fault:
        print(f"tailrace cache: {fault}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The actions and their arguments."""
    place = with_place(argparse.ArgumentParser(add_help=False))
    top = argparse.ArgumentParser(
        prog="tailrace cache", description="Kept answers of a gateway with the `cache` plugin."
    )
    actions = top.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    actions.add_parser("stats", parents=[place], help="how many answers there are, and how large they are")
    purge = actions.add_parser(
        "purge",
        parents=[place],
        help="throw answers away",
        description="Throw answers away: those for which all that is given holds, or all of them with --all.",
    )
    purge.add_argument("--tenant", help="whose answers")
    purge.add_argument("--scope", help="the name of a scope that tenants share, in place of a tenant's")
    purge.add_argument("--model", help="of this model, as clients or as workers name it")
    purge.add_argument("--prefix", help="whose keys begin with this: =TENANT/MODEL/ROUTE/…, or *SCOPE/…")
    purge.add_argument("--all", action="store_true", help="all answers, of everybody")
    return top


def run(options: argparse.Namespace) -> str:
    """Ask the admin port; what is to be printed."""
    fields: dict[str, Any] = {}
    if options.action == "purge":
        fields = {name: getattr(options, name) for name in _CHOSEN if getattr(options, name) is not None}
        if not fields and not options.all:
            raise Fatal("say which: --tenant, --scope, --model, --prefix, or --all")
        if fields and options.all:
            raise Fatal("--all leaves nothing to choose")
    told: list[str] = []
    missing: Fatal | None = None
    for plugin, beginning in _PLUGINS.items():
        if plugin != "cache" and fields.keys() & _ONLY_CACHE:
            continue
        admin = Admin.of(options)
        try:
            answer = admin.ask("POST", f"/admin/plugins/{plugin}/{options.action}", fields)
        except Fatal as fault:
            if _NOT_THERE not in str(fault):
                raise
            missing = missing or fault
            continue
        told += [f"{beginning}{name.replace('_', ' ')}: {count}" for name, count in _added(answer).items()]
    if not told and missing is not None:
        raise missing
    return "\n".join(told)


def _added(answer: dict[str, Any]) -> dict[str, int]:
    """The numbers of all processes put together."""
    numbers: dict[str, int] = {}
    for process in answer["processes"]:
        here: dict[str, int] = {}
        for plugin in process:
            for name, count in (plugin or {}).items():
                # Several entries of a plugin look at the same answers, of which each throws away what is left.
                here[name] = here.get(name, 0) + count if name.endswith("purged") else max(here.get(name, 0), count)
        for name, count in here.items():
            known = numbers.get(name, 0)
            numbers[name] = max(known, count) if _is_found(name) else known + count
    return numbers


def _is_found(name: str) -> bool:
    """Whether every process gives the same number, and not its part of one; what one throws away is gone for all."""
    return name.startswith(_SHARED) and name != "store_purged"
