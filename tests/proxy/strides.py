"""Tasks as requests have them, and turns of the loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

from tailrace.proxy.stride import Stride


def stride(coro: Coroutine[Any, Any, Any]) -> Stride:
    """A task that has taken its first steps."""
    task = Stride(coro, asyncio.get_running_loop(), contextvars.copy_context())
    task.resume()
    return task


async def turns(count: int = 3) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)
