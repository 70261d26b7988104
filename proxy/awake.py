"""Limits of time that a standstill of the event loop does not use up.

A loop that stood still runs the timers that are due before it reads what has come meanwhile: whoever answered in time
would be held to be late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_READ: Final = 0.02
"""Seconds in which a loop that runs again has read what came."""


@asynccontextmanager
async def awake(limit: float) -> AsyncIterator[None]:
    """Let the body take so many seconds; raises TimeoutError once they are over, and what has come has been read."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as bound:
        timer = loop.call_later(limit, lambda: bound.reschedule(loop.time() + _READ))
        try:
            yield
        finally:
            timer.cancel()
