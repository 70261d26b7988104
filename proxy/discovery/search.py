"""Follows every source of workers that a configuration names, once on a host, and tells when what they say changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tailrace.proxy.build import all_pools
from tailrace.proxy.discovery.carrying import shortage
from tailrace.proxy.discovery.endpoint import NOTHING, Endpoint, Found
from tailrace.proxy.discovery.itself import Itself
from tailrace.proxy.discovery.names import WatchedName
from tailrace.proxy.discovery.registry import TICK, Registry
from tailrace.proxy.discovery.settings import WorkerEntry, sources, urls
from tailrace.proxy.discovery.source import Source
from tailrace.proxy.discovery.twins import Twins
from tailrace.proxy.discovery.watched import WatchedFile
from tailrace.proxy.settings import Gateway, PoolSettings, Relay

log: Final = logging.getLogger("tailrace")
FIRST: Final = 2.0
"""Seconds that a start or a reload waits for what sources have to say at first."""
QUIET: Final = 10.0
"""Seconds without a change after which a pool that finds its workers is held against its peak."""


class Search:
    """One host's. `changed` is called whenever `found` is another."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.found = NOTHING
        self.changed = changed
        self._loop = asyncio.get_running_loop()
        self.registry = Registry(self._loop.time)
        self._pools: Mapping[str, PoolSettings] = {}
        self._coming: Mapping[str, PoolSettings] = {}
        self._sources: dict[str, tuple[WorkerEntry, Source, asyncio.Task[None]]] = {}
        self._twins = Twins(())
        self._expiring: asyncio.Task[None] | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._counting: asyncio.TimerHandle | None = None
        self._told: dict[str, str] = {}
        self._itself = Itself()

    async def prepare(self, settings: Relay) -> None:
        """Begin to follow what a configuration names beside what is followed already, and wait a moment for it."""
        self._itself.listens(listener.address for listener in settings.listen)
        self._coming = all_pools(settings) if isinstance(settings, Gateway) else {}
        wanted = sources({name: pool.workers for name, pool in self._coming.items()})
        begun = self._follow_as(wanted)
        self.registry.leases = {**self.registry.leases, **leases(self._coming)}
        # What is in force stays as it is, whatever is coming has to say of it.
        twins = Twins((*_listed(self._pools), *_listed(self._coming)), self._twins.known)
        begun.append(asyncio.ensure_future(twins.look()))
        await asyncio.wait(begun, timeout=FIRST)
        self._compare(twins, begun[-1])
        self._gather()

    def commit(self) -> None:
        """The configuration is in force: let go of what it does not name."""
        self._pools = self._coming
        wanted = sources({name: pool.workers for name, pool in self._pools.items()})
        for key in self._sources.keys() - wanted.keys():
            self._sources.pop(key)[2].cancel()
        self._follow_as(wanted)
        self.registry.follow(leases(self._pools))
        if self.registry.leases and self._expiring is None:
            self._expiring = asyncio.ensure_future(self._expire())
        twins = Twins(_listed(self._pools), self._twins.known)
        self._compare(twins, asyncio.ensure_future(twins.look()))
        self._gather()
        self._tell_of_shortages(now=True)
        self._count_later()

    def discard(self) -> None:
        """The prepared configuration is not used."""
        self._coming = self._pools
        self.commit()

    def register(self, group: str, endpoint: Endpoint) -> None:
        """Begin or renew a sidecar's lease; raises KeyError for a group that no pool has, or Full."""
        if self.registry.register(group, endpoint):
            self._gather()

    def leave(self, group: str, url: str) -> None:
        """A sidecar goes."""
        if self.registry.leave(group, url):
            self._gather()

    def close(self) -> None:
        """Follow nothing any more."""
        tasks = [task for _, _, task in self._sources.values()]
        for task in (*tasks, self._expiring, self._comparing):
            if task is not None:
                task.cancel()
        if self._counting is not None:
            self._counting.cancel()

    def _follow_as(self, wanted: Mapping[str, WorkerEntry]) -> list[asyncio.Future[float]]:
        """Follow sources as they are wanted; gives the first looks at those that are not followed so yet."""
        begun: list[asyncio.Future[float]] = []
        for key, entry in wanted.items():
            known = self._sources.get(key)
            if known is not None and known[0] == entry:
                continue
            source = self._source(entry)
            if source is None:
                continue
            if known is not None:
                known[2].cancel()
                source.found = known[1].found
            begun.append(asyncio.ensure_future(source.look()))
            self._sources[key] = entry, source, asyncio.ensure_future(self._follow(source, begun[-1]))
        return begun

    def _source(self, entry: WorkerEntry) -> Source | None:
        if entry.file is not None:
            return WatchedFile(entry.file)
        return WatchedName(entry.dns, self._loop.time) if entry.dns is not None else None

    async def _follow(self, source: Source, first: asyncio.Future[float]) -> None:
        looking = first
        while True:
            try:
                pause = await looking
            except Exception:
                log.exception("a source of workers could not be looked at; what it said last counts")
                pause = FIRST
            self._gather()
            await asyncio.sleep(pause)
            looking = asyncio.ensure_future(source.look())

    def _compare(self, twins: Twins, first: asyncio.Future[float]) -> None:
        """Go by these twins from now on."""
        if self._comparing is not None:
            self._comparing.cancel()
        self._twins = twins
        self._comparing = asyncio.ensure_future(self._go_on_comparing(twins, first))

    async def _go_on_comparing(self, twins: Twins, first: asyncio.Future[float]) -> None:
        pause = await first
        while pause < float("inf"):
            self._gather()
            await asyncio.sleep(pause)
            pause = await twins.look()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if self.registry.expire():
                self._gather()

    def _gather(self) -> None:
        """Put together what all say, and tell if that is news."""
        members = {key: source.found for key, (_, source, _) in self._sources.items()}
        for group in self.registry.leases:
            members[f"registered {group}"] = self.registry.members(group)
        found = Found(members, dict(self._twins.same))
        if found != self.found:
            self.found = found
            self._itself.look(found)
            self._count_later()
            self.changed()

    def _count_later(self) -> None:
        """Count when nothing has changed for a while: workers come one after the other."""
        if self._counting is not None:
            self._counting.cancel()
        self._counting = self._loop.call_later(QUIET, self._tell_of_shortages)

    def _tell_of_shortages(self, *, now: bool = False) -> None:
        """Say what a pool lacks for the peak that is declared for it, once; `now` of those alone that cannot change."""
        for name, pool in self._pools.items():
            if now and any(entry.source for entry in pool.workers):
                continue
            lack = shortage(self._count(pool.workers), pool.peak, pool.concurrency)
            if lack and self._told.get(name) != lack:
                log.warning("pool '%s': %s", name, lack)
            self._told[name] = lack

    def _count(self, entries: Sequence[WorkerEntry]) -> int:
        found = self.found.members
        return sum(1 if entry.url is not None else len(found.get(entry.source, ())) for entry in entries)


def _listed(pools: Mapping[str, PoolSettings]) -> list[str]:
    """The URLs that pools name."""
    return [url for pool in pools.values() for _, url in urls(pool.workers)]


def leases(pools: Mapping[str, PoolSettings]) -> dict[str, float]:
    """The shortest lease of every group that pools name."""
    found: dict[str, float] = {}
    for pool in pools.values():
        for entry in pool.workers:
            if entry.registered is not None:
                group, lease = entry.registered.group, entry.registered.lease
                found[group] = min(lease, found.get(group, lease))
    return found
