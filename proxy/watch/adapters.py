"""Adapters that workers list become model names of their own, without a line in the configuration."""

from __future__ import annotations

from collections.abc import Iterable

import orjson
from tailrace.proxy.fleet import ModelEntry, Models, Pool


def list_adapters(models: Models, pools: Iterable[Pool]) -> None:
    """Bring the adapters of a chain up to what the workers of its pools list now.

    Configured names come first, then the first pool that lists an adapter. Only pools behind configured models count.
    """
    open_pools = {entry.pool for entry in models.entries.values()}
    found: dict[str, Pool] = {}
    for pool in pools:
        if pool in open_pools:
            for name in pool.adapters():
                if name not in models.entries:
                    found.setdefault(name, pool)
    for name, entry in tuple(models.adapters.items()):
        if found.get(name) is not entry.pool:
            entry.pool.detach(entry)
            del models.adapters[name]
            models.written.pop(orjson.dumps(name), None)
    for name, pool in found.items():
        if name not in models.adapters:
            entry = ModelEntry(name, pool, name, adapter=True)
            pool.attach(entry)
            entry.rebuild()
            models.adapters[name] = models.written[orjson.dumps(name)] = entry
