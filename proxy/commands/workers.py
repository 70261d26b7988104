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
_COLUMNS = ("WORKER", "POOLS", "TAKES CALLS", "IN FLIGHT", "RUNNING", "WAITING", "WHY")


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


def run(options: argparse.Namespace) -> int:
    """Ask the admin port and print its answer."""
    admin = Admin(options.admin, options.token or os.environ.get(TOKEN))
    asked: dict[str, str] | None = None if options.action == "list" else {"worker": options.worker}
    answer = admin.ask("GET" if asked is None else "POST", _PATHS[options.action], asked)
    try:
        told = table(answer["workers"]) if asked is None else _done(answer)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise Fatal(f"{without_userinfo(options.admin)} is no admin port of tailrace: {_NO_SENSE}") from None
    print(told)
    return 0


def _done(answer: dict[str, Any]) -> str:
    return f"{answer['worker']} {'gets no new calls' if answer['drained'] else 'may get calls again'}"


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
    rows = [_COLUMNS, *map(_row, workers)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(worker: dict[str, Any]) -> tuple[str, ...]:
    standing = worker["standing"]
    return (
        worker["worker"],
        ",".join(worker["pools"]),
        "yes" if worker["eligible"] else "no",
        str(worker["inflight"]),
        _known(standing["running"]),
        _known(standing["waiting"]),
        _reason(worker),
    )


def _reason(worker: dict[str, Any]) -> str:
    standing = worker["standing"]
    marks = ["drained by an operator"] if worker["drained"] else []
    marks += ["dead"] if standing["dead"] else []
    marks += ["draining"] if standing["draining"] else []
    marks += ["not ready"] if not standing["ready"] and not standing["dead"] else []
    marks += [standing["reason"]] if standing["reason"] else []
    return "; ".join(marks)


def _known(number: int | None) -> str:
    return "?" if number is None else str(number)
