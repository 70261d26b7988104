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


@asynccontextmanager
async def awake(limit: float) -> AsyncIterator[None]:
    """Let the body take so many seconds; raises TimeoutError once they are over, and what has come has been read."""
    loop = asyncio.get_running_loop()
    due = loop.time() + limit
    async with asyncio.timeout(None) as bound:

        def over() -> None:
            nonlocal due, timer
            late = loop.time() - due
            if late > _LATE:
                # An answer in several parts has not even begun to be read.
                due += late + min(late, limit)
                timer = loop.call_at(due, over)
            else:
                bound.reschedule(loop.time() + _LATE)

        timer = loop.call_at(due, over)
        try:
            yield
        finally:
            timer.cancel()
