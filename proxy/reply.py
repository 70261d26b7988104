"""The reply that a plugin can give in a worker's place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from tailrace.proxy.head import Head
from tailrace.proxy.outcome import Usage


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
        headers: Iterable[tuple[bytes, bytes]] | None = None,
        usage: Usage | None = None,
        source: str = "plugin",
    ) -> None:
        self.head = Head(status, [(b"content-type", content_type), *(headers or [])])
        self.body = body
        self.usage = usage
        self.source = source
