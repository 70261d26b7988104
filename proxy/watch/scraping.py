"""The load of an engine without a sidecar, read from its metrics: what it says of itself, and only while it is fresh.

A reading costs the engine time, and every process of every gateway takes its own: they are spaced by their size, and
not in step. What cannot be read leaves the load unknown, which is no fault: vLLM answers late when it is busy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from tailrace.proxy.fleet import Worker
from tailrace.proxy.sweep import Clock
from tailrace.proxy.watch.ask import ask
from tailrace.proxy.watch.asked import Unanswered
from tailrace.proxy.watch.exposition import FILTERED, WHOLE, Load, parse

log: Final = logging.getLogger("tailrace")
EVERY: Final = 0.5
SECONDS_PER_BYTE: Final = 2e-5
"""Of an exposition that comes whole, which takes vLLM 6 ms for 48 KB: that engine is asked once a second."""
SELDOM: Final = 5.0
"""Longest pause after readings that failed."""
ANSWER: Final = 2.0


@asynccontextmanager
async def scraping(worker: Worker, clock: Clock, draw: Callable[[], float]) -> AsyncIterator[None]:
    """Keep a worker's load current inside the block."""
    task = asyncio.ensure_future(Scraper(worker, clock, draw).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class Scraper:
    """Reads one engine's metrics, again and again."""

    def __init__(self, worker: Worker, clock: Clock, draw: Callable[[], float]) -> None:
        self._worker = worker
        self._clock = clock
        self._draw = draw
        self._path = FILTERED
        self._last: tuple[float, Load] | None = None
        self._failures = 0

    async def run(self) -> None:
        """Read for as long as the engine has metrics of its load."""
        while True:
            try:
                pause = await self._read()
            except Exception:
                log.exception("the metrics of worker %s could not be taken in", self._worker.name)
                pause = SELDOM
            await asyncio.sleep(pause * (0.75 + 0.5 * self._draw()))

    async def _read(self) -> float:
        """One reading; how long to wait for the next."""
        asked = self._clock.now
        try:
            answer = await ask(self._worker, self._path, ANSWER)
        except Unanswered:
            return self._failed()
        if answer.status != 200 and self._path == FILTERED:
            # It knows the exact path only, if any.
            self._path = WHOLE
            return 0.0
        load = parse(answer.body) if answer.status == 200 else None
        if load is None:
            return self._failed()
        self._failures = 0
        self._take(load, asked)
        return max(EVERY, len(answer.body) * SECONDS_PER_BYTE)

    def _failed(self) -> float:
        self._failures += 1
        return min(EVERY * 2.0 ** min(self._failures, 16), SELDOM)

    def _take(self, load: Load, asked: float) -> None:
        """Go by a reading; how old it is counts from when it was asked for."""
        standing, now = self._worker.standing, self._clock.now
        standing.running, standing.waiting, standing.kv_use = load.running, load.waiting, load.kv_use
        standing.sampled = asked
        if self._last is not None and now > self._last[0]:
            made = load.generated - self._last[1].generated
            standing.tokens_per_second = max(made, 0.0) / (now - self._last[0])
        self._last = now, load
