"""What is told of something that lasts: first after a moment, then at growing intervals, for as long as it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

FIRST = 1.5
"""Seconds after which something takes long enough to be worth a word."""
LONGEST = 60.0


@asynccontextmanager
async def telling(tell: Callable[[], None]) -> AsyncIterator[None]:
    """Call `tell` now and then while the block lasts."""
    task = asyncio.ensure_future(_tell(tell))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _tell(tell: Callable[[], None]) -> None:
    pause = FIRST
    while True:
        await asyncio.sleep(pause)
        tell()
        pause = min(pause * 2, LONGEST)
