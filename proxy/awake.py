"""Limits of time that a standstill of the event loop does not use up.

A loop that stood still runs the timers that are due before it reads what has come meanwhile: whoever answered in time
would be held to be late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_LATE: Final = 0.02
"""Seconds that a timer is late by where the loop stood still; in so many one that runs reads what has come."""


class _Timer:
    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float, bound: asyncio.Timeout) -> None:
        self._loop = loop
        self._limit = limit
        self._bound = bound
        self._due = loop.time() + limit
        self._handle = loop.call_at(self._due, self._over)

    def _over(self) -> None:
        late = self._loop.time() - self._due
        if late > _LATE:
            # An answer in several parts has not even begun to be read.
            self._due += late + min(late, self._limit)
            self._handle = self._loop.call_at(self._due, self._over)
        else:
            self._bound.reschedule(self._loop.time() + _LATE)

    def cancel(self) -> None:
        self._handle.cancel()


@asynccontextmanager
async def awake(limit: float) -> AsyncIterator[None]:
    """Let the body take so many seconds; raises TimeoutError once they are over, and what has come has been read."""
    async with asyncio.timeout(None) as bound:
        timer = _Timer(asyncio.get_running_loop(), limit, bound)
        try:
            yield
        finally:
            timer.cancel()
