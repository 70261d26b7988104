"""A relay in one process: its chain, its connections and its doors. Gateways and sidecars both run one."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from tailrace.proxy.births import Births
from tailrace.proxy.build import Roster, all_pools, chain_of, models_of
from tailrace.proxy.chain import Chain
from tailrace.proxy.door import Door, bind
from tailrace.proxy.fleet import Pool
from tailrace.proxy.pipeline import Pipeline
from tailrace.proxy.service import Service
from tailrace.proxy.settings import Gateway

log = logging.getLogger("tailrace")


class GatewayProcess:
    """One process of a gateway, from its settings to its last answer."""

    def __init__(self, settings: Gateway) -> None:
        self.settings = settings
        self.service = Service(asyncio.get_running_loop(), settings.limits)
        self.roster = Roster(self.service.sweep)
        self.births = Births()
        self.doors: list[Door] = []
        self.pools: dict[str, Pool] = {}
        self._generation = 0
        self._lives: AsyncExitStack | None = None

    async def load(self, settings: Gateway) -> Chain:
        """Build and put in place the chain of a configuration; on any error the present one stays.

        Calls that are running keep the chain they began with; its plugins are closed when the last of them is over.
        """
        pipeline = Pipeline.of([entry.link() for entry in settings.plugins])
        lives = AsyncExitStack()
        try:
            for link in pipeline.links:
                await lives.enter_async_context(link.plugin.running())
        except BaseException:
            await lives.aclose()
            raise
        self._generation += 1
        pools = self.roster.pools(all_pools(settings), settings.timeouts)
        models = models_of(settings.models, pools)
        chain = chain_of(settings, pipeline, models, pools, self.births, self._generation)
        self.settings, self.pools = settings, pools
        old, self._lives = self._lives, lives
        self.service.use(chain, old)
        return chain

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on listening sockets, one for each listener of the settings."""
        for listener, sock in zip(self.settings.listen, sockets, strict=True):
            door = Door(self.service, listener, sock)
            await door.open()
            self.doors.append(door)
        self.service.sweep.start()

    async def close(self) -> None:
        """Close everything at once."""
        for door in self.doors:
            door.close()
        await self.service.close()
        self.roster.close()
        if self._lives is not None:
            await self._lives.aclose()


@asynccontextmanager
async def running(settings: Gateway) -> AsyncIterator[GatewayProcess]:
    """A gateway in this very process and event loop, without supervisor or admin port: for tests and embedding."""
    process = GatewayProcess(settings)
    try:
        await process.load(settings)
        await process.open([bind(listener) for listener in settings.listen])
        yield process
    finally:
        await process.close()
