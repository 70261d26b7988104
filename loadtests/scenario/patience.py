"""Waiting for what others decide, and do not tell."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = math.inf, pause: float = 0.02) -> bool:
    """Ask again and again; whether it held within so many seconds."""
    deadline = time.monotonic() + seconds
    while not await holds():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(pause)
    return True
