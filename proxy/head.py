"""Heads of requests and answers, and the reply a plugin can give in a worker's place."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tailrace.proxy.outcome import Usage

HeaderList = list[tuple[bytes, bytes]]


class RequestHead:
    """The head of a client's request, as received; header names keep their case in `headers`.

    `path` is the normalised path that routing, guards and forwarding all use; `query` has no question mark.
    """

    __slots__ = ("_folded", "headers", "method", "path", "query", "version")

    def __init__(self, method: str, path: str, query: bytes, headers: HeaderList, version: str) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.version = version
        self._folded: dict[bytes, bytes] | None = None

    def get(self, name: bytes) -> bytes | None:
        """The last value of the header `name`, given in lower case."""
        folded = self._folded
        if folded is None:
            folded = self._folded = {key.lower(): value for key, value in self.headers}
        return folded.get(name)

    def all(self, name: bytes) -> list[bytes]:
        """Every value of the header `name`, given in lower case."""
        return [value for key, value in self.headers if key.lower() == name]


class Head:
    """The head of an answer on its way to the client; header names are lower case.

    Framing headers (content-length, transfer-encoding, connection) are the core's and not in `headers`.
    """

    __slots__ = ("headers", "status")

    def __init__(self, status: int, headers: HeaderList) -> None:
        self.status = status
        self.headers = headers

    def get(self, name: bytes) -> bytes | None:
        """The first value of the header `name`, given in lower case."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def set(self, name: bytes, value: bytes) -> None:
        """Replace every header `name` by one."""
        self.headers = [pair for pair in self.headers if pair[0] != name]
        self.headers.append((name, value))

    def remove(self, name: bytes) -> None:
        """Drop every header `name`."""
        self.headers = [pair for pair in self.headers if pair[0] != name]


def streaming_head(head: Head) -> None:
    """Say what every stream says, so that nothing on the way buffers or transforms it."""
    head.set(b"cache-control", b"no-cache, no-transform")
    head.set(b"x-accel-buffering", b"no")


class Reply:
    """An answer given by a plugin in a worker's place (a cache hit, a degraded answer).

    `body` is whole bytes or an iterator of pieces that are relayed as they come; `source` names where it came from.
    """

    __slots__ = ("body", "head", "source", "usage")

    def __init__(
        self,
        status: int,
        body: bytes | AsyncIterator[bytes],
        *,
        content_type: bytes = b"application/json",
        headers: HeaderList | None = None,
        usage: Usage | None = None,
        source: str = "plugin",
    ) -> None:
        self.head = Head(status, [(b"content-type", content_type), *(headers or [])])
        self.body = body
        self.usage = usage
        self.source = source
