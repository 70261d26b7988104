"""From settings to a Chain: workers are kept over reloads, everything else is built anew."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson
from tailrace.proxy.address import Address
from tailrace.proxy.births import Births
from tailrace.proxy.chain import HOLD_UNARY, Chain
from tailrace.proxy.fleet import ModelEntry, Models, Pool, Worker
from tailrace.proxy.health import HEALTH
from tailrace.proxy.limits import Timeouts
from tailrace.proxy.pipeline import Pipeline
from tailrace.proxy.pool import ConnectionPool, PoolLimits
from tailrace.proxy.replies import list_models, not_found, options, show_model, unsupported
from tailrace.proxy.routes import INFERENCE, MODELS, UNSUPPORTED, Route, RouteTable, Shape
from tailrace.proxy.settings import ClientTls, Gateway, ModelSettings, PoolSettings, Relay
from tailrace.proxy.sweep import Sweep
from tailrace.proxy.tls import ClientContext


@dataclass(frozen=True, slots=True)
class _Way:
    """What identifies a worker over reloads: where it is and how it is reached."""

    shown: str
    tls: ClientTls | None
    api_key: str
    limits: PoolLimits


@dataclass(frozen=True, slots=True)
class Proposal:
    """The pools that a configuration asks for, not in place yet."""

    pools: dict[str, Pool]
    kept: dict[_Way, Worker]


class Roster:
    """All workers of a process by identity, so that a reload keeps their connections and counts."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._workers: dict[_Way, Worker] = {}

    @property
    def workers(self) -> Iterable[Worker]:
        """Every worker of the present configuration."""
        return self._workers.values()

    def propose(self, settings: Mapping[str, PoolSettings], timeouts: Timeouts) -> Proposal:
        """The pools of a configuration, with the workers that it shares with the present one; changes nothing."""
        limits = PoolLimits(timeouts.upstream_idle, timeouts.upstream_age, timeouts.connect)
        kept: dict[_Way, Worker] = {}
        pools = {}
        for name, pool in settings.items():
            members = []
            for url in pool.workers:
                key = pool.api_key.reveal() if pool.api_key is not None else ""
                address = Address.parse(url)
                way = _Way(address.shown, pool.tls, key, limits)
                worker = kept.get(way) or self._workers.get(way)
                if worker is None:
                    address.user_timeout = timeouts.unacknowledged
                    worker = self._hire(address, pool, key, limits)
                kept[way] = worker
                members.append(worker)
            pools[name] = Pool(name, members)
        return Proposal(pools, kept)

    def adopt(self, proposal: Proposal) -> None:
        """Make a proposal the present state; workers that it no longer names are retired."""
        for way, worker in self._workers.items():
            if way not in proposal.kept:
                worker.connections.close()
        self._workers = proposal.kept
        pools = proposal.pools.values()
        for worker in self._workers.values():
            worker.pools = [pool for pool in pools if worker in pool.workers]
        # A worker's standing may have changed since the proposal was made.
        for pool in pools:
            pool.rebuild()

    def _hire(self, address: Address, pool: PoolSettings, key: str, limits: PoolLimits) -> Worker:
        context = ClientContext(pool.tls) if address.tls else None
        connections = ConnectionPool(address, context.current if context else None, self._sweep, limits)
        worker = Worker(address, connections)
        if key:
            worker.credentials = b"authorization: Bearer %b\r\n" % key.encode()
            worker.hop(b"")
        return worker

    def close(self) -> None:
        """Close every resting connection."""
        for worker in self._workers.values():
            worker.connections.close()


def all_pools(settings: Gateway) -> dict[str, PoolSettings]:
    """The named pools and one for each model that lists its workers itself."""
    pools = dict(settings.pools)
    for name, model in settings.models.items():
        if model.workers:
            pools[f"model:{name}"] = PoolSettings(workers=model.workers)
    return pools


def models_of(settings: Mapping[str, ModelSettings], pools: Mapping[str, Pool]) -> Models:
    """The model names that clients may use; the pools keep their candidates in step."""
    entries = {}
    for name, model in settings.items():
        pool = pools[model.pool or f"model:{name}"]
        served = model.lora or model.served_as or name
        entry = ModelEntry(name, pool, served, adapter=model.lora is not None, rename=model.rename)
        pool.attach(entry)
        entries[name] = entry
    for pool in pools.values():
        pool.rebuild()
    written = {form: entry for name, entry in entries.items() for form in (orjson.dumps(name),)}
    return Models(entries, {}, written)


def chain_of(
    settings: Relay,
    pipeline: Pipeline,
    models: Models,
    pools: Mapping[str, Pool],
    births: Births,
    generation: int,
) -> Chain:
    """The chain of a configuration."""
    renames = any(entry.rename for entry in models.entries.values())
    edits = bool(pipeline.on_stream or pipeline.needs or renames)
    return Chain(
        generation=generation,
        pipeline=pipeline,
        models=models,
        routes=route_table(settings, pools),
        timeouts=settings.timeouts,
        limits=settings.limits,
        processes=settings.processes,
        heartbeat=settings.heartbeat,
        created=int(time.time()),
        compression=settings.compression,
        births=births,
        pins={worker: ModelEntry("", pool, "") for pool in pools.values() for worker in pool.workers},
        taps=edits,
        hold_unary=settings.limits.body if edits else HOLD_UNARY,
        forward_headers=frozenset(name.lower().encode() for name in settings.forward_headers),
        default_model=settings.default_model if isinstance(settings, Gateway) else None,
    )


def route_table(settings: Relay, pools: Mapping[str, Pool]) -> RouteTable:
    """The paths of the data port."""
    table = RouteTable((*INFERENCE, *HEALTH), not_found, options)
    for path, answer in zip(MODELS, (list_models, show_model), strict=True):
        for method in ("GET", "HEAD"):
            table.add(Route(path, "models", method, Shape.OPAQUE, local=answer))
    # Somebody else behind a pool may well serve them.
    passed = {route.path for route in settings.routes}
    for path, what in UNSUPPORTED:
        refuse = unsupported(what)
        for form in {path, path + "/*"} - passed:
            anthropic = path.startswith("/v1/messages")
            table.add(Route(form, "unsupported", "*", Shape.OPAQUE, local=refuse, anthropic=anthropic))
    for route in settings.routes:
        for method in route.methods:
            entry = ModelEntry(route.path, pools[route.pool], route.path)
            pools[route.pool].attach(entry)
            entry.rebuild()
            table.add(Route(route.path, "pass_through", method, Shape.OPAQUE, entry=entry))
    return table
