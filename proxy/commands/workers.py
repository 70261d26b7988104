"""`tailrace workers`: list the workers of a running gateway, take one out of service, bring it back."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from tailrace.proxy.commands.admin_port import Admin, with_place
from tailrace.proxy.config.units import Duration
from tailrace.proxy.fleet import SILENT

NAME = "workers"
HELP = "list, drain and undrain the workers of a running gateway"
_PATHS = {
    "list": "/admin/workers",
    "drain": "/admin/workers/drain",
    "undrain": "/admin/workers/undrain",
}
_COLUMNS = (
    "WORKER",
    "POOLS",
    "FROM",
    "WEIGHT",
    "REGION",
    "TAKES CALLS",
    "IN FLIGHT",
    "RUNNING",
    "WAITING",
    "WHY",
)
_BARS = {"breaker": "circuit open"}
_SELDOM = ("WEIGHT", "REGION")
"""Columns that are shown where they say something."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    place = with_place(argparse.ArgumentParser(add_help=False))
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    actions.add_parser("list", parents=[place], help="show them with their load")
    for name, told in (("drain", "send it no new calls; running ones finish"), ("undrain", "let it have calls again")):
        action = actions.add_parser(name, parents=[place], help=told, description=f"For one worker: {told}.")
        action.add_argument("worker", metavar="WORKER", help="its URL, as the list shows it")
        if name == "drain":
            help_ = "what still runs after this long goes on elsewhere or ends, such as 30s (default: all finish)"
            action.add_argument("--limit", metavar="TIME", type=_seconds, default=None, help=help_)


def run(options: argparse.Namespace) -> int:
    """Ask the admin port and print its answer."""
    admin = Admin.of(options)
    asked: dict[str, Any] | None = None if options.action == "list" else {"worker": options.worker}
    if asked is not None and getattr(options, "limit", None) is not None:
        asked["limit"] = options.limit
    answer = admin.ask("GET" if asked is None else "POST", _PATHS[options.action], asked)
    try:
        told = table(answer["workers"]) if asked is None else _done(answer, asked.get("limit"))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise admin.no_sense() from None
    print(told)
    return 0


def _seconds(text: str) -> float:
    duration = Duration()
    seconds = float(text) if text.isdecimal() else duration.read(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not {duration.words}")
    return seconds


def _done(answer: dict[str, Any], limit: float | None) -> str:
    told = "gets no new calls" if answer["drained"] else "may get calls again"
    later = f"; what runs there goes on elsewhere in {limit:g} s, or ends" if limit is not None else ""
    return f"{answer['worker']} {told}{later}"


def table(workers: Sequence[dict[str, Any]]) -> str:
    """Workers as rows under headings."""
    listed = [_row(worker) for worker in workers]
    columns = [
        number
        for number, name in enumerate(_COLUMNS)
        if name not in _SELDOM or any(row[number] not in ("", "1") for row in listed)
    ]
    rows = [tuple(row[column] for column in columns) for row in (_COLUMNS, *listed)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(worker: dict[str, Any]) -> tuple[str, ...]:
    standing = worker["standing"]
    return (
        worker["worker"],
        ",".join(worker["pools"]),
        _origin(worker),
        f"{worker['weight']:g}",
        worker["region"],
        "yes" if worker["gets_calls"] else "no",
        str(worker["inflight"]),
        _known(standing["running"]),
        _known(standing["waiting"]),
        _reason(worker),
    )


def _origin(worker: dict[str, Any]) -> str:
    """Where it is known from, and how long that still holds where it has an end."""
    told = ", ".join(worker["origins"])
    return told if worker["lease"] is None else f"{told} ({worker['lease']:g} s left)"


def _reason(worker: dict[str, Any]) -> str:
    """What an operator has said of it, and the strongest of what speaks against it."""
    marks = [_state(worker)]
    if worker["drained"]:
        left = worker["time_left"]
        marks.insert(0, "drained by an operator" + (f" ({left:g} s left)" if left is not None else ""))
    return "; ".join(mark for mark in marks if mark)


def _state(worker: dict[str, Any]) -> str:
    standing, reason = worker["standing"], worker["standing"]["reason"]
    if standing["dead"]:
        return f"gone: {reason}" if reason else "gone"
    if SILENT in worker["bars"]:
        return "silent"
    if standing["draining"]:
        return "draining"
    if not standing["ready"]:
        return f"not ready: {reason}" if reason else "not ready"
    if worker["bars"]:
        spared = ", but one of the last of its pool" if worker["gets_calls"] else ""
        return " and ".join(_BARS.get(bar, bar) for bar in worker["bars"]) + spared
    return str(reason)


def _known(number: int | None) -> str:
    return "?" if number is None else str(number)
