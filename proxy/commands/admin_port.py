"""The admin port of a running gateway or sidecar, as the commands ask it."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
from typing import Any
from urllib.parse import urlsplit

from tailrace.proxy.config.secret import without_userinfo
from tailrace.proxy.supervisor import Fatal

ADMIN = "http://127.0.0.1:9090"
TOKEN = "TAILRACE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
TIMEOUT = 10.0


def with_place(parser: argparse.ArgumentParser, whose: str = "the gateway's") -> argparse.ArgumentParser:
    """A parser that also takes which admin port to ask."""
    parser.add_argument(
        "--admin",
        metavar="URL",
        default=ADMIN,
        help=f"{whose} admin port, http://HOST:PORT or unix:/PATH (default: %(default)s)",
    )
    parser.add_argument("--token", default=None, help=f"its token (default: ${TOKEN})")
    return parser


class Admin:
    """An admin port somewhere; whatever keeps it from answering is one clear line."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = without_userinfo(url)
        self._connection = _connection(url)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @classmethod
    def of(cls, options: argparse.Namespace) -> Admin:
        """The one that a command line names, as `with_place` lets it; its token may be in the environment."""
        return cls(options.admin, options.token or os.environ.get(TOKEN))

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
            raise self.no_sense() from None
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

    def no_sense(self) -> Fatal:
        """An answer that no admin port gives."""
        return Fatal(f"{self._url} is no admin port of tailrace: its answer makes no sense")


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
