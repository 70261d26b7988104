"""`tailrace workers`: list the workers of a running gateway, take one out of service, bring it back."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from tailrace.proxy.config.secret import without_userinfo
from tailrace.proxy.config.units import Duration
from tailrace.proxy.fleet import SILENT
from tailrace.proxy.supervisor import Fatal

NAME = "workers"
HELP = "list, drain and undrain the workers of a running gateway"
ADMIN = "http://127.0.0.1:9090"
TOKEN = "TAILRACE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
TIMEOUT = 10.0
_PATHS = {
    "list": "/admin/workers",
    "drain": "/admin/workers/drain",
    "undrain": "/admin/workers/undrain",
}
_NO_SENSE = "its answer makes no sense"
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
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument(
        "--admin",
        metavar="URL",
        default=ADMIN,
        help="the gateway's admin port, http://HOST:PORT or unix:/PATH (default: %(default)s)",
    )
    place.add_argument("--token", default=None, help=f"its token (default: ${TOKEN})")
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
    admin = Admin(options.admin, options.token or os.environ.get(TOKEN))
    asked: dict[str, Any] | None = None if options.action == "list" else {"worker": options.worker}
    if asked is not None and getattr(options, "limit", None) is not None:
        asked["limit"] = options.limit
    answer = admin.ask("GET" if asked is None else "POST", _PATHS[options.action], asked)
    try:
        told = table(answer["workers"]) if asked is None else _done(answer, asked.get("limit"))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise Fatal(f"{without_userinfo(options.admin)} is no admin port of tailrace: {_NO_SENSE}") from None
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


class Admin:
    """An admin port somewhere; whatever keeps it from answering is one clear line."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = without_userinfo(url)
        self._connection = _connection(url)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of an answer; Fatal for a refusal."""
        content = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, content, self._headers)
            answer = self._connection.getresponse()
            decoded = json.loads(answer.read())
        except OSError as error:
            raise Fatal(f"no answer from {self._url}: {error.strerror or error}") from None
        except (http.client.HTTPException, ValueError):
            raise Fatal(f"{self._url} is no admin port of tailrace: {_NO_SENSE}") from None
        finally:
            self._connection.close()
        if answer.status != 200:
            told = decoded.get("error") if isinstance(decoded, dict) else None
            if answer.getheader("x-request-id") is not None:
                raise Fatal(f"{self._url} is the port of clients; give the address that stands under `admin`")
            if answer.status == 401 and isinstance(told, dict):
                given = "another `token`" if self._headers else "its `token`"
                raise Fatal(f"{self._url} asks for {given}: give it with --token or in ${TOKEN}")
            raise Fatal(told["message"] if isinstance(told, dict) else f"{self._url} answered {answer.status}")
        return decoded


class _OverUnix(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        """Connect; raises OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


def _connection(url: str) -> http.client.HTTPConnection:
    """A connection that is not open yet; Fatal for what is no address of an admin port."""
    if url.startswith("unix:/"):
        return _OverUnix(url.removeprefix("unix:"))
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("", "http", "https"):
        raise Fatal(f"'{without_userinfo(url)}' is no URL of an admin port, such as {ADMIN} or unix:/PATH")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(host, port, timeout=TIMEOUT)


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
