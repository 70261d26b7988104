"""Holding the end of answers until their records are on disk, for a time at most."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.proxy.logs import Seldom

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.ledger.ring import Ring

log = logging.getLogger("tailrace")
LOOK: Final = 0.001
"""Seconds between two looks at how far the log is, while anything is held."""


class Waiting:
    """The answers of one process that are held, in the order in which they were settled."""

    def __init__(self, ring: Ring, longest: float) -> None:
        self.overdue = 0
        self.held_seconds = 0.0
        self._ring = ring
        self._longest = longest
        self._held: deque[tuple[int, float, Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._complaint = Seldom(10.0)

    def hold(self, call: Call, release: Callable[[], None]) -> bool:
        """Hold an answer whose record was settled just now."""
        loop = call.client.loop
        self._held.append((self._ring.settled, loop.time(), release))
        if self._timer is None:
            self._timer = loop.call_later(LOOK, self._look, loop)
        return True

    def close(self) -> None:
        """Look no more: the memory is given back, and whoever is still held has left or is cut off."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.clear()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        try:
            while self._held:
                number, since, release = self._held[0]
                durable = self._ring.is_durable(number)
                if not durable and now - since < self._longest:
                    break
                self._held.popleft()
                self.held_seconds += now - since
                if not durable:
                    self._complain()
                release()
        finally:
            if self._held:
                self._timer = loop.call_later(LOOK, self._look, loop)

    def _complain(self) -> None:
        self.overdue += 1
        if self._complaint.due():
            log.error("answers leave %.1f s after their end though their records are not on disk yet", self._longest)
