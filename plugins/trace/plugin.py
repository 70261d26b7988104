"""The `trace` plugin: W3C context in and out, and spans of the calls that are worth it, delivered over OTLP.

Whether a call is kept is decided when it is over. Its spans are made then, of the stamps that it has anyway, and not
here: records go to the supervisor, which builds spans and speaks to the collector in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from opentelemetry import context
from tailrace.plugins.trace.outbox import Outbox
from tailrace.plugins.trace.part import part
from tailrace.plugins.trace.settings import Config as _Config
from tailrace.plugins.trace.tracer import Tracer
from tailrace.proxy.control import Gone, Refused
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.trace.told import offset_ns

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.ground import Places
    from tailrace.proxy.host import HostPart
    from tailrace.proxy.outcome import Outcome

log = logging.getLogger("tailrace")
EVERY: Final = 0.5
"""Seconds between two batches of a process."""
BATCH: Final = 256
LAST: Final = 2.0


class Trace(Plugin[_Config]):
    """Stands first, so that it sees every call that others refuse."""

    Config = _Config
    keeps_files = False

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._outbox = Outbox(config.queue)
        keep = self._outbox.put if config.url is not None else None
        follows = config.parents == "follow"
        self.tracer = Tracer(config.ratio, config.slowest, config.rate, follows=follows, keep=keep)

    def host_part(self, places: Places) -> AbstractAsyncContextManager[HostPart]:
        """The one that speaks to the collector."""
        return part(self.config)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hand records on now and then, and what is left at the end."""
        context.get_current()  # looks for its implementation the first time, which takes a while
        handing = asyncio.ensure_future(self._hand_on())
        try:
            yield
        finally:
            handing.cancel()
            with suppress(asyncio.CancelledError):
                await handing
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST):
                    while self._outbox.records:
                        await self._hand_over()
            self._outbox.drop()

    @property
    def on_open(self) -> Callable[[Call], None]:
        """Find or make the context."""
        return self.tracer.opened

    @property
    def on_complete(self) -> Callable[[Call, Outcome], None]:
        """Decide."""
        return self.tracer.completed

    def metrics(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """What was kept, and what was lost before it came to the one that delivers."""
        for why, count in self.tracer.keeping.kept.items():
            yield "kept_total", {"why": why}, count
        yield "overflowed_total", {}, self._outbox.dropped + self.tracer.keeping.dropped

    async def _hand_on(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            while self._outbox.records:
                await self._hand_over()

    async def _hand_over(self) -> None:
        """One batch; where nobody takes it, it is lost."""
        batch = self._outbox.take(BATCH)
        try:
            await self.ground.ask("spans", offset_ns=offset_ns(), records=batch)
        except (Refused, Gone):
            self._outbox.dropped += len(batch)
