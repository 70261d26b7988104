"""A relay in one process: its chain, its connections and its doors. Gateways and sidecars both run one."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tailrace.proxy.births import Births
from tailrace.proxy.build import all_pools, chain_of, models_of, pins_of
from tailrace.proxy.chain import Chain
from tailrace.proxy.discovery.announcement import announced, route
from tailrace.proxy.discovery.endpoint import NOTHING, Found
from tailrace.proxy.discovery.search import Search, leases
from tailrace.proxy.discovery.steps import Steps, nothing
from tailrace.proxy.door import Door, bind
from tailrace.proxy.drain import drain
from tailrace.proxy.entry import chain_links
from tailrace.proxy.fleet import Pool, Worker
from tailrace.proxy.ground import Ground
from tailrace.proxy.health import unreachable
from tailrace.proxy.holding import Holdings
from tailrace.proxy.hop import HopKey
from tailrace.proxy.host import Host
from tailrace.proxy.metrics import Segment
from tailrace.proxy.pipeline import Link, Pipeline, hosted_links
from tailrace.proxy.role import Seat
from tailrace.proxy.roster import Proposal, Roster
from tailrace.proxy.service import Service
from tailrace.proxy.settings import Gateway, PoolSettings, Relay
from tailrace.proxy.share import Board, Share
from tailrace.proxy.tenure import Tenure
from tailrace.proxy.watch.adapters import list_adapters
from tailrace.proxy.watch.fleet_watch import FleetWatch

log = logging.getLogger("tailrace")
SettingsT = TypeVar("SettingsT", bound=Relay)


class RelayProcess(Generic[SettingsT]):
    """One process of a relay, from its settings to its last answer. A role says what its links, pools and chain are."""

    def __init__(self, settings: SettingsT, seat: Seat | None = None) -> None:
        self.settings = settings
        segment = Segment.attach(seat.metrics) if seat is not None and seat.metrics is not None else None
        self.service = Service(asyncio.get_running_loop(), settings.limits, segment)
        if seat is not None and seat.board is not None:
            self.service.share = Share(Board(seat.board, seat.count), seat.index)
        if seat is not None:
            self.service.host_unready = lambda: seat.host_unready
        self.roster = Roster(self.service.sweep, NOTHING if seat is None else seat.found)
        self._steps = Steps(self._take_up, self.roster.found)
        self.births = Births(-1 if seat is None else seat.births)
        self.doors: list[Door] = []
        self.pools: dict[str, Pool] = {}
        self._tenure = Tenure.of(settings) if seat is None or seat.tenure is None else seat.tenure
        self._generation = seat.generation - 1 if seat is not None else 0
        self._holdings: Holdings | None = None
        self._seat = 0 if seat is None else seat.index
        self._ask = None if seat is None else seat.ask
        # Without a supervisor the parts that run once on a host run here.
        self._host: Host | None = None
        self._search = Search(self._searched) if seat is None or seat.register is None else None
        self._register = self._taken if seat is None or seat.register is None else seat.register

    def links(self, settings: SettingsT) -> Iterable[Link]:
        """The plugins of a configuration, in order."""
        return chain_links(settings.plugins)

    def pools_of(self, settings: SettingsT) -> Mapping[str, PoolSettings]:
        """The workers of a configuration."""
        raise NotImplementedError  # abstract

    def chain(self, settings: SettingsT, pipeline: Pipeline, pools: Mapping[str, Pool], generation: int) -> Chain:
        """The chain of a configuration."""
        raise NotImplementedError  # abstract

    async def prepare(self, settings: SettingsT) -> StagedChain:
        """Build the chain of a configuration and start its plugins; on any error nothing has changed."""
        pipeline = Pipeline.of(self.links(settings))
        await self._settle(settings, hosted_links(pipeline.links))
        if self._search is not None:
            await self._search.prepare(settings)
        proposal = self.roster.propose(self.pools_of(settings), settings.timeouts)
        holdings = Holdings(self.service.plugin_failed)
        await holdings.begin(pipeline.links)
        try:
            chain = self.chain(settings, pipeline, proposal.pools, self._generation + 1)
        except BaseException:
            await holdings.close()
            raise
        return StagedChain(self, settings, chain, proposal, holdings)

    async def _settle(self, settings: SettingsT, hosted: Sequence[Link]) -> None:
        """Give plugins what they share with the other processes of this host."""
        if not hosted:
            return
        ask = self._ask
        if ask is None:
            if self._host is None:
                self._host = Host(self._tenure.places, self.service.metrics.host_values)
                self.service.host_unready = self._host.unready
            await self._host.prepare(chain_links(settings.plugins))
            ask = partial(self._host.answer, self._seat)
        for link in hosted:
            link.plugin.ground = Ground(link.name, self._tenure.places, self._seat, ask)

    async def load(self, settings: SettingsT) -> Chain:
        """Build and put in place the chain of a configuration; on any error the present one stays."""
        staged = await self.prepare(settings)
        staged.commit()
        if self._host is not None:
            await self._host.commit()
        return staged.chain

    def discovered(self, found: Found, then: Callable[[], None] = nothing) -> None:
        """Take up what discovery has found now: workers come and go, and running calls go on where they are."""
        self._steps.go(found, then, at_once=not self.pools)

    def _take_up(self, found: Found) -> None:
        self.roster.update(found)
        if self.pools:
            self._pin()

    def _pin(self) -> None:
        """Keep up with who is there to answer calls that only one worker can."""
        pins = self.service.chain.pins
        pins.clear()
        pins.update(pins_of(self.pools))

    def _searched(self) -> None:
        if self._search is not None:
            self.discovered(self._search.found)

    async def _taken(self, announcement: dict[str, Any]) -> None:
        if self._search is not None:
            announced(self._search, **announcement)

    def adopt(self, staged: StagedChain) -> None:
        """Serve new calls by a prepared chain; running ones keep theirs, whose plugins are closed after the last."""
        self._generation = staged.chain.generation
        self.roster.adopt(staged.proposal, self.service.chain.calls if self.pools else None)
        self.settings, self.pools = staged.settings, staged.proposal.pools
        self.service.ring.bound(staged.settings.traces.calls, staged.settings.traces.kept)
        old, self._holdings = self._holdings, staged.holdings
        self.service.use(staged.chain, old)
        self._pin()
        if self._search is not None:
            self._search.commit()

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on listening sockets, one for each listener of the tenure."""
        for listener, sock in zip(self._tenure.listen, sockets, strict=True):
            door = Door(self.service, listener, sock)
            await door.open()
            self.doors.append(door)
        if self.service.share is not None:
            self.service.share.join(0)
        self.service.sweep.start()
        self.service.metrics.start(self.service, self.workers)

    def workers(self) -> Iterable[Worker]:
        """The workers of the present configuration."""
        return self.roster.workers

    def unready(self) -> list[str]:
        """Why this process should get no new traffic: it ends, or has nobody to send calls to."""
        return self.service.unready() or unreachable(self.roster.workers, watched=self.service.watched)

    async def drain(self, hurry: asyncio.Event) -> None:
        """End the service as the settings say."""
        await drain(self.service, self.doors, self.settings.pre_stop, self.settings.drain, hurry)

    async def close(self) -> None:
        """Close everything at once."""
        for door in self.doors:
            door.drop()
        await self.service.close()
        if self._search is not None:
            self._search.close()
        self._steps.close()
        self.roster.close()
        if self._holdings is not None:
            await self._holdings.close()
        if self._host is not None:
            await self._host.close()
        self.service.metrics.close()


class GatewayProcess(RelayProcess[Gateway]):
    """One process of a gateway; `watching` its workers is what tells it of their health and load."""

    def __init__(self, settings: Gateway, seat: Seat | None = None, *, watching: bool = True) -> None:
        super().__init__(settings, seat)
        self.service.watched = self.roster.watched = watching
        self.roster.let_go = self._follow
        suspected = self.service.metrics.calls.suspected
        self.watch = FleetWatch(self.service.sweep, self._adapters_changed, suspected, watching=watching)

    def pools_of(self, settings: Gateway) -> Mapping[str, PoolSettings]:
        """The named pools and those that models list themselves."""
        return all_pools(settings)

    def chain(self, settings: Gateway, pipeline: Pipeline, pools: Mapping[str, Pool], generation: int) -> Chain:
        """The chain of a gateway."""
        models = models_of(settings.models, pools)
        chain = chain_of(settings, pipeline, models, pools, self.births, generation)
        known = leases(all_pools(settings))
        if known and settings.hop_key is not None:
            chain.routes.add(route(HopKey(settings.hop_key.reveal()), known, self._register))
        return chain

    def adopt(self, staged: StagedChain) -> None:
        """Serve new calls by a prepared chain, and watch its workers."""
        super().adopt(staged)
        self._adapters_changed()
        self._follow()

    def _take_up(self, found: Found) -> None:
        super()._take_up(found)
        if self.pools:
            self._adapters_changed()
            self._follow()

    def _follow(self) -> None:
        """Watch the present workers, and those that still finish their calls."""
        key = self.settings.hop_key
        workers = (*self.workers(), *self.roster.leaving)
        hop_key = None if key is None else HopKey(key.reveal())
        self.watch.follow(workers, hop_key, self.settings.stale, self.settings.suspect_after)

    def _adapters_changed(self) -> None:
        list_adapters(self.service.chain.models, self.pools.values())

    async def close(self) -> None:
        """Close everything at once."""
        await self.watch.close()
        await super().close()


@dataclass(frozen=True, slots=True)
class StagedChain:
    """A chain whose plugins run already but that no call follows yet."""

    process: RelayProcess[Any]
    settings: Any
    chain: Chain
    proposal: Proposal
    holdings: Holdings

    def commit(self) -> None:
        """Put it in place."""
        self.process.adopt(self)

    async def discard(self) -> None:
        """Stop its plugins."""
        await self.holdings.close()


class GatewayRole:
    """The role `gateway`."""

    Settings = Gateway

    def check(self, settings: Gateway) -> None:
        """Refuse plugins that form no chain."""
        Pipeline.of(chain_links(settings.plugins))

    async def open(self, settings: Gateway, sockets: Sequence[socket.socket], seat: Seat) -> GatewayProcess:
        """Serve on listening sockets."""
        process = GatewayProcess(settings, seat)
        try:
            await process.load(settings)
            await process.open(sockets)
        except BaseException:
            await process.close()
            raise
        return process


@asynccontextmanager
async def running(settings: Gateway, *, watching: bool = False) -> AsyncIterator[GatewayProcess]:
    """A gateway in this very process and event loop, without supervisor or admin port: for tests and embedding.

    Unless it is `watching`, workers get only the requests of clients.
    """
    process = GatewayProcess(settings, watching=watching)
    try:
        await process.load(settings)
        await process.open([bind(listener) for listener in settings.listen])
        yield process
    finally:
        await process.close()
