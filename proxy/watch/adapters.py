"""What workers list: adapters become model names of their own, and configured names that nobody lists are told."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import orjson
from tailrace.proxy.fleet import ModelEntry, Models, Pool

log = logging.getLogger("tailrace")
SHOWN = 8


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
    for entry in models.entries.values():
        _tell_of_missed(entry)


def _tell_of_missed(entry: ModelEntry) -> None:
    """Say it once where no worker lists what a configured name stands for, and once when one does."""
    if not entry.missed and entry.unlisted and entry.known:
        listed = sorted({name for worker in entry.pool.workers for name in worker.standing.models})
        shown = ", ".join(f"'{name}'" for name in listed[:SHOWN]) + (", …" if len(listed) > SHOWN else "")
        log.warning("model '%s': no worker lists '%s'; they list %s", entry.name, entry.served, shown)
        entry.missed = True
    elif entry.missed and not entry.unlisted:
        log.info("model '%s': a worker lists '%s' now", entry.name, entry.served)
        entry.missed = False
