"""Waiting for an answer for so long and no longer, while this very process may be short of time itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
_SLICE: Final = 0.005
LONGEST: Final = 1.0


class Question:
    """One about a counter, from the first who wants to know to the answer; `known` is then whether there was one."""

    __slots__ = ("_waiting", "known")

    def __init__(self) -> None:
        self.known: bool | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def answered(self, *, known: bool) -> None:
        """Wake all who wait."""
        self.known = known
        for future in self._waiting:
            _wake(future)
        self._waiting.clear()

    async def wait(self, limit: float) -> bool:
        """Wait for the answer; time in which this event loop was too busy to look at what had come does not count.

        Each waits by a future of its own: very many may wait, and leave, at once.
        """
        loop = asyncio.get_running_loop()
        waited = 0.0
        last = loop.time() + LONGEST
        while self.known is None and waited < limit and loop.time() < last:
            slice_of = min(limit, _SLICE)
            began = loop.time()
            future = loop.create_future()
            self._waiting.append(future)
            timer = loop.call_later(slice_of, _wake, future)
            try:
                await future
            finally:
                timer.cancel()
            if loop.time() - began < 2 * slice_of:
                waited += slice_of
        return self.known is not None


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def within(limit: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of some work; raises TimeoutError where that takes longer, by the same measure."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    waited = 0.0
    last = loop.time() + LONGEST
    try:
        while not task.done() and waited < limit and loop.time() < last:
            slice_of = min(limit, _SLICE)
            began = loop.time()
            await asyncio.wait([task], timeout=slice_of)
            if loop.time() - began < 2 * slice_of:
                waited += slice_of
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        task.cancel()
