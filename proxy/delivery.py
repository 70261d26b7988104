"""How much of a stream's usage the client's kernel has taken: what is billed when the client, or this process, is gone.

Before each write it is asked how much of the earlier ones still waits here. A client that keeps up has all of them, so
the usage of the last one is told; for one that lags behind, it is kept with the place in the stream where it stood.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import FAILURES
from tailrace.proxy.outcome import Usage

if TYPE_CHECKING:
    import asyncio

    from tailrace.proxy.call import Call
    from tailrace.proxy.harvest import Harvest

log: Final = logging.getLogger("tailrace")
Numbers = tuple[int, int, int, bool]


class Delivery:
    """The account of one stream, of which those who follow the usage hear.

    Over TLS what waits behind the encryption, a socket's buffer at most, counts as taken.
    """

    __slots__ = ("_behind", "_call", "_followers", "_harvest", "_last", "_told", "_transport", "taken")

    def __init__(self, call: Call, harvest: Harvest, transport: asyncio.Transport) -> None:
        self._call = call
        self._harvest = harvest
        self._transport = transport
        self._followers = harvest.followers
        self._told = Usage()
        self._last = Usage()
        self._behind: deque[tuple[int, Numbers]] = deque()
        self.taken = 0
        """Bytes of the answer's body that were handed to the kernel, its framing included."""

    def moved(self, written: int) -> None:
        """More is about to be written; so far `written` bytes of the answer's body were."""
        last = self._last
        waiting = self._transport.get_write_buffer_size()
        if waiting:
            self._behind.append((written, (last.prompt, last.completion, last.cached, last.estimated)))
            self._catch_up(max(self.taken, written - waiting))
        else:
            self.taken = written
            if self._behind:
                self._behind.clear()
            if last.prompt or last.completion:
                self._last, self._told = self._told, last
                self._tell(last)
                last = self._last
        harvest = self._harvest
        pieces = harvest.pieces
        last.prompt = harvest.prompt
        last.completion = harvest.completion + pieces
        last.cached = harvest.cached
        last.estimated = pieces > 0

    def _catch_up(self, taken: int) -> None:
        """The kernel has taken so many bytes of a client's that lags behind."""
        self.taken = taken
        numbers: Numbers | None = None
        while self._behind and self._behind[0][0] <= taken:
            numbers = self._behind.popleft()[1]
        if numbers is not None and (numbers[0] or numbers[1]):
            told = self._told
            told.prompt, told.completion, told.cached, told.estimated = numbers
            self._tell(told)

    def _tell(self, usage: Usage) -> None:
        for follower in self._followers:
            try:
                follower(usage, self.taken)
            except FAILURES:
                log.exception("a follower of the usage of request %s failed, and hears no more of it", self._call.id)
                self._followers = tuple([other for other in self._followers if other is not follower])

    def end(self) -> Usage | None:
        """What the client has taken of an answer that it left, None where that is nothing."""
        last = self._told if self._behind else self._last
        return last if last.prompt or last.completion else None
