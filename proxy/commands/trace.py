"""`tailrace trace`: where the time of one call went, as text, and which calls are worth a look."""

from __future__ import annotations

import argparse
import sys
from typing import Any
from urllib.parse import quote, urlencode

from tailrace.proxy.commands.admin_port import Admin, with_place
from tailrace.proxy.trace.told import MOST, ORDERS
from tailrace.proxy.trace.waterfall import table, unheard, waterfall

NAME = "trace"
HELP = "show where the time of a call went"
FEW = 10


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    with_place(parser, "a gateway's or sidecar's")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "id", metavar="ID", nargs="?", type=_name, help="a request id, as in x-request-id and the logs, or a trace id"
    )
    words = {"slowest": "the slowest", "errors": "the last failed", "latest": "the last"}
    for order in ORDERS:
        help_ = f"list {words[order]} calls instead, so many (default: {FEW})"
        which.add_argument(f"--{order}", metavar="N", nargs="?", type=_count, const=FEW, default=None, help=help_)


def run(options: argparse.Namespace) -> int:
    """Ask the admin port and print its answer."""
    admin = Admin.of(options)
    chosen = [(order, count) for order in ORDERS if (count := getattr(options, order)) is not None]
    if chosen:
        [(order, count)] = chosen
        answer = admin.ask("GET", "/admin/traces?" + urlencode({"of": order, "limit": count}))
    else:
        answer = admin.ask("GET", "/admin/traces/" + quote(options.id, safe=""))
    try:
        print(_listed(answer) if chosen else "\n\n".join(map(waterfall, answer["calls"])))
        if silent := unheard(answer.get("silent", ())):
            print(silent.strip(), file=sys.stderr)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise admin.no_sense() from None
    return 0


def _listed(answer: Any) -> str:
    return table(answer["calls"]) if answer["calls"] else "no such call is remembered"


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to {MOST}")
    return int(text)
