"""The sidecar: a relay with one worker, the engine beside it, which it starts, watches, guards and speaks for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from tailrace.proxy.address import Address
from tailrace.proxy.build import chain_of
from tailrace.proxy.chain import Chain
from tailrace.proxy.config import Secret
from tailrace.proxy.discovery.settings import WorkerEntry
from tailrace.proxy.door import bind
from tailrace.proxy.entry import chain_links
from tailrace.proxy.fleet import Pool
from tailrace.proxy.gateway import RelayProcess, StagedChain
from tailrace.proxy.hop import HopKey
from tailrace.proxy.pipeline import ChainError, Link, Pipeline
from tailrace.proxy.role import Seat
from tailrace.proxy.settings import PoolSettings
from tailrace.worker.admittance import Admittance, AdmittanceConfig
from tailrace.worker.engine.launch import Engine, engine
from tailrace.worker.engine.state import EngineState, Phase
from tailrace.worker.gate import Gate, GateConfig
from tailrace.worker.registration import Registration
from tailrace.worker.report import Report
from tailrace.worker.settings import ENGINE, Worker
from tailrace.worker.state_feed import StateFeed
from tailrace.worker.surface import EngineEntry, OnlyBirths, any_model, name_models, route_table

LOOK = 0.05


class SidecarProcess(RelayProcess[Worker]):
    """The one process of a sidecar."""

    engine: Engine

    def __init__(self, settings: Worker, seat: Seat | None = None) -> None:
        super().__init__(settings, seat)
        self.gate = Gate(_gate_config(settings))
        self.report = Report(self.gate, own_engine=settings.engine.url is None)
        self.feed = StateFeed(self.report)
        self._admittance = Admittance(_admittance_config(settings), self.report)
        self._engine_life = AsyncExitStack()
        self._letting_go: asyncio.Task[None] | None = None
        self._registration: Registration | None = None
        self._registering: set[asyncio.Task[None]] = set()

    async def start_engine(self) -> None:
        """Begin to run the engine; raises EngineError where that cannot be as it is configured."""
        self.engine = await self._engine_life.enter_async_context(engine(self.settings.engine, self._engine_changed))
        self.gate.told = self.engine
        self.service.sweep.add(self.gate)

    def links(self, settings: Worker) -> Iterable[Link]:
        """The plugins between the sidecar's own first and last links."""
        return [Link(self._admittance, "admittance"), *super().links(settings), Link(self.gate, "gate")]

    def pools_of(self, settings: Worker) -> Mapping[str, PoolSettings]:
        """The engine."""
        key = self.engine.api_key
        workers = (WorkerEntry(url=self.engine.target),)
        return {ENGINE: PoolSettings(workers=workers, api_key=Secret(key) if key else None)}

    def chain(self, settings: Worker, pipeline: Pipeline, pools: Mapping[str, Pool], generation: int) -> Chain:
        """A relay's chain, on which every model name leads to the engine."""
        pool = pools[ENGINE]
        entry = EngineEntry(pool, self._look)
        pool.attach(entry)
        entry.rebuild()
        chain = chain_of(replace(settings, routes=()), pipeline, any_model(entry), pools, OnlyBirths(), generation)
        routes = route_table(settings, pools, self.report, self.feed)
        # A request without a model is the engine's to judge, too.
        return replace(chain, routes=routes, default_model="")

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections, and tell gateways so."""
        await super().open(sockets)
        self._register_anew()

    def _register_anew(self) -> None:
        """Go by the present settings: leave the gateways of the last ones, or say to them what is new."""
        settings, key = self.settings.register, self.settings.hop_key
        registration = None
        if settings is not None and key is not None and self.doors and not self.service.draining:
            shown = [door.shown for door in self.doors]
            places = [url for url in shown if not Address.parse(url).unspecified]
            url = settings.url or (places or shown)[0]
            registration = Registration(settings, HopKey(key.reveal()), url, lambda: self.feed.subscribers)
        old, self._registration = self._registration, registration
        if old is not None or registration is not None:
            task = self.service.loop.create_task(_replace(old, registration))
            self._registering.add(task)
            task.add_done_callback(self._registering.discard)

    async def prepare(self, settings: Worker) -> StagedChain:
        """Build the chain of a configuration; the engine is no part of it."""
        if settings.engine != self.settings.engine:
            raise ChainError("a changed `engine` needs a restart of the sidecar, which ends what is running")
        return await super().prepare(settings)

    def adopt(self, staged: StagedChain) -> None:
        """Serve new calls by a prepared chain."""
        before = self.settings
        super().adopt(staged)
        if (before.register, before.hop_key) != (self.settings.register, self.settings.hop_key):
            self._register_anew()
        self.gate.resize(_gate_config(staged.settings))
        self._admittance.config = _admittance_config(staged.settings)
        self._engine_changed(self.engine.state)

    def unready(self) -> list[str]:
        """Why this worker should get no calls, as its operator may know it."""
        return self.service.unready() or self.report.unready(whole=True)

    def _engine_changed(self, state: EngineState) -> None:
        """Bring everything up to what is known of the engine now."""
        for worker in self.workers():
            standing = worker.standing
            before = (standing.takes_calls, standing.dead)
            standing.ready = state.phase is Phase.READY
            standing.draining, standing.dead, standing.reason = state.draining, state.dead, state.reason
            standing.running, standing.waiting, standing.kv_use = state.running, state.waiting, state.kv_use
            standing.tokens_per_second = state.tokens_per_second
            standing.models = {model.id: model.parent or "" for model in state.models}
            standing.seen = self.service.clock.now
            if before != (standing.takes_calls, standing.dead):
                worker.changed()
        if ENGINE in self.pools:
            name_models(self.service.chain.models, self.pools[ENGINE], [model.id for model in state.models])
        self._tell(state)
        if state.dead:
            self.gate.send_away(self.report.gone)

    def _look(self) -> None:
        """An operator may have drained the worker."""
        self._tell(self.report.engine)

    def _tell(self, state: EngineState) -> None:
        drained = any(worker.drained for worker in self.workers())
        self.report.update(state, draining=drained or self.service.draining)

    async def drain(self, hurry: asyncio.Event) -> None:
        """Say so at once, refuse new calls, let those finish that are here."""
        self.service.draining = True
        self._look()
        self._register_anew()
        # An engine that dies from now on is not brought back.
        await self.engine.drain(0.0)
        self._letting_go = self.service.loop.create_task(self._let_readers_go(hurry))
        await super().drain(hurry)

    async def _let_readers_go(self, hurry: asyncio.Event) -> None:
        """End the feeds once nothing else is left: they would go on for ever, and the drain with them."""
        try:
            async with asyncio.timeout(self.settings.pre_stop):
                await hurry.wait()
        except TimeoutError:
            while self.service.active:  # noqa: ASYNC110 - a count, at the end of a life
                await asyncio.sleep(LOOK)
        self.feed.close()

    async def close(self) -> None:
        """Close everything, the engine last."""
        if self._letting_go is not None:
            self._letting_go.cancel()
        self.service.draining = True
        self._register_anew()
        if self._registering:
            await asyncio.wait(self._registering)
        try:
            await super().close()
        finally:
            await self._engine_life.aclose()


async def _replace(old: Registration | None, new: Registration | None) -> None:
    if old is not None:
        if new is not None and new.is_like(old):
            old.close()
        else:
            await old.leave()
    if new is not None:
        new.begin()


def _gate_config(settings: Worker) -> GateConfig:
    return GateConfig(concurrency=settings.concurrency, queue=settings.queue, queue_timeout=settings.queue_timeout)


def _admittance_config(settings: Worker) -> AdmittanceConfig:
    key = settings.hop_key
    return AdmittanceConfig(hop=None if key is None else HopKey(key.reveal()))


class SidecarRole:
    """The role `worker`."""

    Settings = Worker

    def check(self, settings: Worker) -> None:
        """Refuse plugins that form no chain."""
        Pipeline.of(chain_links(settings.plugins))

    async def open(self, settings: Worker, sockets: Sequence[socket.socket], seat: Seat) -> SidecarProcess:
        """Serve on listening sockets while the engine comes up; until it is ready, calls are refused."""
        process = SidecarProcess(settings, seat)
        try:
            await process.start_engine()
            await process.load(settings)
            await process.open(sockets)
        except BaseException:
            await process.close()
            raise
        return process


@asynccontextmanager
async def running(settings: Worker) -> AsyncIterator[SidecarProcess]:
    """A sidecar in this very process and event loop, without supervisor or admin port: for tests and embedding."""
    process = await SidecarRole().open(settings, [bind(listener) for listener in settings.listen], Seat())
    try:
        yield process
    finally:
        await process.close()
