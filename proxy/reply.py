"""The reply that a plugin can give in a worker's place."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING

from tailrace.proxy.fault import check_status
from tailrace.proxy.head import Head
from tailrace.proxy.outcome import Usage
from tailrace.proxy.stored.sources import FOLLOWED

if TYPE_CHECKING:
    from tailrace.proxy.publication import Follower


class Reply:
    """An answer given by a plugin in a worker's place (a cache hit, a degraded answer).

    `body` is whole bytes or an asynchronous iterator of pieces that are relayed as they come; `source` names where it
    came from. The status is from 200 to 599; what could not be sent is a ValueError or a TypeError here.
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
        check_status("a Reply", status, least=200)
        if not isinstance(body, bytes) and not isinstance(body, AsyncIterable):
            raise TypeError(f"the body of a Reply must be bytes or an asynchronous iterator, not {type(body).__name__}")
        self.head = Head(status, [(b"content-type", content_type), *(headers or [])])
        self.body = body
        self.usage = usage
        self.source = source

    @classmethod
    def follow(cls, follower: Follower, *, headers: Iterable[tuple[bytes, bytes]] | None = None) -> Reply:
        """The stream of another call, whose beginning was waited for, as it comes."""
        return cls(
            200, follower.pieces(), content_type=b"text/event-stream; charset=utf-8", headers=headers, source=FOLLOWED
        )


class Instead(Exception):  # noqa: N818 - an answer, not an error of the program
    """No worker answers a call, and a policy gives this Reply in their place."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.source)
        self.reply = reply
