"""Heads of requests and answers."""

from __future__ import annotations

from typing import Final

HeaderList = list[tuple[bytes, bytes]]


class RequestHead:
    """The head of a client's request, as received; header names keep their case in `headers`.

    `path` is the normalised path that routing, guards and forwarding all use; `query` has no question mark; `target` is
    both again, as a worker gets them, without credentials; `forwarded` are the header lines that cross; `plain_json`
    says that the body is declared to be JSON in UTF-8 without any coding, `packed` that it has one. A connection's next
    request with the same head shares this object.
    """

    __slots__ = (
        "_folded",
        "expects_continue",
        "forwarded",
        "headers",
        "method",
        "packed",
        "path",
        "plain_json",
        "query",
        "target",
        "version",
    )

    def __init__(self, method: str, path: str, query: bytes, target: bytes, headers: HeaderList, version: str) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.target = target
        self.headers = headers
        self.version = version
        self.forwarded = b""
        self.expects_continue = False
        self.packed = False
        self.plain_json = False
        self._folded: dict[bytes, bytes] | None = None

    @property
    def folded(self) -> dict[bytes, bytes]:
        """The last value of every header, by name in lower case."""
        folded = self._folded
        if folded is None:
            folded = self._folded = {key.lower(): value for key, value in self.headers}
        return folded

    def get(self, name: bytes) -> bytes | None:
        """The last value of the header `name`, given in lower case."""
        return self.folded.get(name)

    def all(self, name: bytes) -> list[bytes]:
        """Every value of the header `name`, given in lower case."""
        return [value for key, value in self.headers if key.lower() == name]

    def forwarding(self, lines: bytes) -> RequestHead:
        """A copy that forwards these header lines: this head itself may be shared with other requests."""
        copy = RequestHead(self.method, self.path, self.query, self.target, self.headers, self.version)
        copy.forwarded = lines
        copy.expects_continue = self.expects_continue
        copy.packed = self.packed
        copy.plain_json = self.plain_json
        copy._folded = self._folded
        return copy


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

    def set_all(self, pairs: HeaderList) -> None:
        """Replace every header of these names by those given."""
        names = {name for name, _ in pairs}
        self.headers = [pair for pair in self.headers if pair[0] not in names]
        self.headers += pairs

    def remove(self, name: bytes) -> None:
        """Drop every header `name`."""
        self.headers = [pair for pair in self.headers if pair[0] != name]


_STREAMING: Final = ((b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))
_OF_STREAMS: Final = (b"cache-control", b"x-accel-buffering")


def streaming_head(head: Head) -> None:
    """Say what every stream says, so that nothing on the way buffers or transforms it."""
    headers = [pair for pair in head.headers if pair[0] not in _OF_STREAMS]
    headers += _STREAMING
    head.headers = headers
