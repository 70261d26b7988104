"""From settings and the pools that stand for them to a Chain, which every reload builds anew."""

from __future__ import annotations

import time
from collections.abc import Mapping

import orjson
from tailrace.proxy.births import Births
from tailrace.proxy.chain import HOLD_UNARY, Chain
from tailrace.proxy.fleet import ModelEntry, Models, Pool, Worker
from tailrace.proxy.health import HEALTH
from tailrace.proxy.pipeline import Pipeline
from tailrace.proxy.replies import list_models, not_found, options, show_model, unsupported
from tailrace.proxy.routes import INFERENCE, MODELS, UNSUPPORTED, Route, RouteTable, Shape
from tailrace.proxy.settings import Gateway, ModelSettings, PoolSettings, Relay


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


def pins_of(pools: Mapping[str, Pool]) -> dict[Worker, ModelEntry]:
    """Every worker, with an entry for calls that only this one can answer."""
    return {worker: ModelEntry("", pool, "") for pool in pools.values() for worker in pool.workers}


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
        pools=pools,
        pins=pins_of(pools),
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
