"""What `trace` runs once on a host: takes the records of all processes, and has them delivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tailrace.plugins.trace.delivery import Delivery
from tailrace.plugins.trace.settings import Config
from tailrace.proxy.control import Refused
from tailrace.proxy.plugin import AnyPlugin


class Part:
    """The host's one delivery, as `HostPart`; none where spans go nowhere."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._delivery: Delivery | None = None
        self._delivered = self._lost = 0
        self._begin()

    async def answer(self, seat: int, question: str, fields: dict[str, Any]) -> Any:
        """`spans`: take records, or drop them where there is no room."""
        if question != "spans":
            raise Refused(f"trace has no answer to '{question}'")
        delivery = self._delivery
        if delivery is None:
            raise Refused("spans go nowhere")
        for raw in fields["records"]:
            delivery.put(raw, fields["offset_ns"], seat)
        return None

    def left(self, seat: int) -> None:
        """What it has handed over is delivered all the same."""

    async def follow(self, plugin: AnyPlugin) -> None:
        """Deliver as the changed configuration says."""
        self._config = plugin.config
        await self.end()
        self._begin()

    def unready(self) -> Sequence[str]:
        """Traces never keep traffic away from a host."""
        return ()

    def metrics(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """What came of the calls that were to be delivered."""
        delivery = self._delivery
        delivered, lost = (0, 0) if delivery is None else (delivery.delivered, delivery.lost)
        yield "delivered_total", {}, self._delivered + delivered
        yield "lost_total", {}, self._lost + lost
        yield "queued", {}, 0 if delivery is None else delivery.waiting

    async def end(self) -> None:
        """Deliver what is there, within a bounded time."""
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            await asyncio.to_thread(delivery.finish)
            self._delivered += delivery.delivered
            self._lost += delivery.lost

    def _begin(self) -> None:
        url = self._config.url
        if url is not None:
            headers = {name: secret.reveal() for name, secret in self._config.headers.items()}
            config = self._config
            self._delivery = Delivery(url, headers, config.service, config.queue, config.timeout)
            self._delivery.start()


@asynccontextmanager
async def part(config: Config) -> AsyncIterator[Part]:
    """The part while the host serves."""
    here = Part(config)
    try:
        yield here
    finally:
        await here.end()
