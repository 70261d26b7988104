"""One reading of a sidecar's state feed, from the request to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from tailrace.proxy.fault import Fault
from tailrace.proxy.hop import REFUSED
from tailrace.proxy.sink import Sink
from tailrace.proxy.watch.asked import CLOSED
from tailrace.proxy.watch.feed import LONGEST_LINE, MEDIA, SIGN_OF_LIFE, FeedError, read_line
from tailrace.proxy.wire import ParsedHead, frame, unframe

SILENCE: Final = 2.5
"""Seconds without a line that mean that nobody is there, from a sidecar that does not say how often lines come."""
_BEAT: Final = frame(SIGN_OF_LIFE)


class End(Enum):
    """How a reading came to its end."""

    OVER = "over"
    """The sidecar ended it in good order: it loads another configuration, or goes."""
    LOST = "lost"
    """It made no sense, or fell silent."""
    BROKEN = "broken"
    """Its connection ended in the middle: so did whoever wrote it, most likely."""
    CLOSED = "closed"
    """The connection was closed without an answer: whoever accepts it has nobody behind it."""
    BARE = "bare"
    """There is no feed here: an engine without a sidecar."""
    REFUSED = "refused"
    """A sidecar that does not accept our hop key, or got none."""


class Subscription(Sink):
    """The sink of the feed; `hear` gets each state, and None for each sign of life."""

    def __init__(self, hear: Callable[[dict[str, Any] | None], None]) -> None:
        self.end: asyncio.Future[tuple[End, str]] = asyncio.get_running_loop().create_future()
        self._hear = hear
        self._answered = False
        self._feeds = False
        self._rest = b""

    def on_head(self, head: ParsedHead) -> None:
        self._answered = True
        self._feeds = head.status == 200 and (b"content-type", MEDIA) in head.headers
        if not self._feeds and head.status != 401:
            self._over(End.BARE, f"status {head.status}")

    def on_chunks(self, chunks: bytes, count: int) -> None:
        if chunks == _BEAT and not self._rest and self._feeds:
            self._hear(None)
        else:
            self.on_data(unframe(chunks))

    def on_data(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            self._over(End.LOST, "its state is too long")
        if not self._feeds:
            return
        for line in lines:
            if self.end.done():
                return
            try:
                self._hear(read_line(line) if line else None)
            except FeedError as error:
                self._over(End.LOST, str(error))

    def on_end(self) -> None:
        if self._feeds:
            self._over(End.OVER, "the feed ended")
        elif REFUSED.encode() in self._rest:
            self._over(
                End.REFUSED, "it does not accept this gateway's hop key, `hop_key` must be the same in both files"
            )
        else:
            self._over(End.BARE, "status 401")

    def on_fault(self, fault: Fault) -> None:
        if fault.kind == "connection_lost" and not self._answered:
            self._over(End.CLOSED, CLOSED)
        else:
            self._over(End.BROKEN if fault.kind == "connection_lost" else End.LOST, fault.message)

    def on_quiet(self, quiet: float, now: float) -> None:
        if quiet > SILENCE:
            self._over(End.LOST, f"nothing was heard for {SILENCE:g} s")

    def _over(self, end: End, why: str) -> None:
        if not self.end.done():
            self.end.set_result((end, why))
