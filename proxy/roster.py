"""The workers of one process by what identifies them, and the pools they form, as settings and discovery say.

A worker is one object for each endpoint, however often it is named. It outlives reloads and, for a while, its own
removal: one that is named again goes on with its counts, and with what plugins have learnt of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tailrace.proxy.address import Address, AddressError
from tailrace.proxy.chain import Running
from tailrace.proxy.client_tls import ClientTls
from tailrace.proxy.discovery.endpoint import NOTHING, Endpoint, Found
from tailrace.proxy.fleet import Pool, Worker
from tailrace.proxy.limits import Timeouts
from tailrace.proxy.lines import Lines
from tailrace.proxy.pool import ConnectionPool, PoolLimits
from tailrace.proxy.settings import PoolSettings
from tailrace.proxy.sweep import Sweep
from tailrace.proxy.tls import ClientContext

log: Final = logging.getLogger("tailrace")
MOST_PLACES: Final = 1 << 16
LINGER: Final = 60.0
"""Seconds for which a worker that was removed is remembered after its last call."""
UNHEARD: Final = "it has not been heard of yet"


@dataclass(frozen=True, slots=True)
class _Way:
    """What identifies a worker: where it is and how it is reached."""

    shown: str
    name: str
    tls: ClientTls | None
    api_key: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """The pools that a configuration asks for, not in place yet."""

    settings: Mapping[str, PoolSettings]
    limits: PoolLimits
    unacknowledged: float
    pools: dict[str, Pool]
    hired: dict[_Way, Worker]


@dataclass(slots=True)
class _Leaver:
    """A removed worker, the second since which it has nothing to do, and whether it had when it was last looked at."""

    worker: Worker
    since: float
    busy: bool


class Roster:
    """All workers of a process. `let_go` is called when a removed one's last call has ended."""

    def __init__(self, sweep: Sweep, found: Found = NOTHING) -> None:
        self.found = found
        self.let_go: Callable[[], None] = _nothing
        self.watched = False
        """Whether newcomers will be heard of, so that they need not get calls before."""
        self._sweep = sweep
        self._lines = Lines(sweep.loop)
        self._places: dict[tuple[str, str], tuple[str, str]] = {}
        """What identifies the place of an endpoint, by its URL and the name that it is called by."""
        self._plan = Proposal({}, PoolLimits(), 0.0, {}, {})
        self._workers: dict[_Way, Worker] = {}
        self._leaving: dict[_Way, _Leaver] = {}
        self._elders: list[tuple[Pool, Running]] = []
        """Pools of configurations before, which calls that began then still choose from."""
        sweep.add(self)

    @property
    def workers(self) -> Iterable[Worker]:
        """Every worker of the present pools."""
        return self._workers.values()

    @property
    def leaving(self) -> Iterable[Worker]:
        """Workers that were removed and still have calls under way."""
        return [left.worker for left in self._leaving.values() if left.worker.inflight]

    def propose(self, settings: Mapping[str, PoolSettings], timeouts: Timeouts) -> Proposal:
        """The pools of a configuration, with the workers that it shares with the present one; changes nothing."""
        limits = PoolLimits(timeouts.upstream_idle, timeouts.upstream_age, timeouts.connect)
        pools = {name: Pool(name, (), each.concurrency) for name, each in settings.items()}
        proposal = Proposal(dict(settings), limits, timeouts.unacknowledged, pools, {})
        for name, pool in pools.items():
            pool.workers = tuple(dict.fromkeys(worker for worker, _ in self._members(proposal, name, proposal.hired)))
        return proposal

    def adopt(self, proposal: Proposal, calls: Running | None = None) -> None:
        """Make a proposal the present state; workers that it no longer names leave.

        `calls` are those of the configuration before, for which its pools are kept up as long as there are any.
        """
        if calls is not None:
            self._elders += [(pool, calls) for pool in self._plan.pools.values()]
        self._plan = proposal
        self._settle(dict(proposal.hired))
        proposal.hired.clear()

    def update(self, found: Found) -> None:
        """Bring the present pools up to what discovery has found."""
        if found.same != self.found.same or len(self._places) > MOST_PLACES:
            self._places.clear()
        self.found = found
        self._settle({})

    def _settle(self, hired: dict[_Way, Worker]) -> None:
        plan, before = self._plan, self._workers
        present: dict[_Way, Worker] = {}
        origins: dict[Worker, dict[str, None]] = {}
        members: dict[str, dict[Worker, None]] = {name: {} for name in plan.pools}
        for name, found in members.items():
            for worker, origin in self._members(plan, name, hired, present):
                origins.setdefault(worker, {})[origin] = None
                found[worker] = None
        self._workers = present
        self._elders = [(pool, calls) for pool, calls in self._elders if calls.count]
        newcomers = {worker for way, worker in present.items() if way not in before and not worker.inflight}
        for way, worker in present.items():
            self._leaving.pop(way, None)
            worker.origins = tuple(origins[worker])
            worker.pools = [pool for name, pool in plan.pools.items() if worker in members[name]]
            worker.pools += [pool for pool, _ in self._elders if worker in members.get(pool.name, pool.workers)]
            _fit(worker, plan)
        if self.watched:
            _have_wait(members.values(), newcomers)
        for way, worker in before.items():
            if way not in present:
                self._dismiss(way, worker)
        for pool in (*plan.pools.values(), *(pool for pool, _ in self._elders)):
            # One that this configuration has not goes on with those it had.
            pool.workers = tuple(members.get(pool.name, pool.workers))
            pool.rebuild()

    def _members(
        self, plan: Proposal, name: str, hired: dict[_Way, Worker], present: dict[_Way, Worker] | None = None
    ) -> Iterator[tuple[Worker, str]]:
        """A pool's workers, each with where it comes from; `hired` gets those that nobody knew."""
        pool = plan.settings[name]
        key = pool.api_key.reveal() if pool.api_key is not None else ""
        for endpoint, origin in self._endpoints(pool):
            try:
                place = self._place(endpoint)
            except AddressError as error:
                # From elsewhere, where it has been checked.
                log.error("%s names no worker: %s", origin, error)
                continue
            way = _Way(*place, pool.tls, key)
            left = self._leaving.get(way)
            worker = self._workers.get(way) or (left.worker if left is not None else None) or hired.get(way)
            if worker is None:
                hired[way] = worker = self._hire(self._address(endpoint), pool, key, plan.limits)
            if present is not None:
                present[way] = worker
                worker.weight = 1.0 if endpoint.weight is None else endpoint.weight
                worker.region = endpoint.region or ""
            yield worker, origin

    def _place(self, endpoint: Endpoint) -> tuple[str, str]:
        """Where an endpoint is, and how it is called; raises AddressError. Thousands are asked for at every change."""
        place = self._places.get((endpoint.url, endpoint.name))
        if place is None:
            address = self._address(endpoint)
            place = self._places[endpoint.url, endpoint.name] = address.shown, address.server_name
        return place

    def _address(self, endpoint: Endpoint) -> Address:
        """Where an endpoint is, by the one of its URLs that counts; raises AddressError."""
        address = Address.parse(endpoint.url)
        if address.shown in self.found.same:
            address = Address.parse(self.found.same[address.shown])
        if endpoint.name and address.host:
            address.called(endpoint.name)
        return address

    def _endpoints(self, pool: PoolSettings) -> Iterator[tuple[Endpoint, str]]:
        """Where a pool's workers are, each with its weight and region."""
        for entry in pool.workers:
            if entry.url is not None:
                yield Endpoint(entry.url, entry.weight, entry.region), "static"
                continue
            for found in self.found.members.get(entry.source, ()):
                weight = entry.weight if found.weight is None else found.weight
                region = entry.region if found.region is None else found.region
                yield Endpoint(found.url, weight, region, found.name), entry.source

    def _hire(self, address: Address, pool: PoolSettings, key: str, limits: PoolLimits) -> Worker:
        context = ClientContext(pool.tls) if address.tls else None
        connections = ConnectionPool(address, context.current if context else None, self._sweep, limits)
        worker = Worker(address, connections)
        if key:
            worker.credentials = b"authorization: Bearer %b\r\n" % key.encode()
            worker.hop(b"")
        return worker

    def _dismiss(self, way: _Way, worker: Worker) -> None:
        """Let a worker finish what it has; it gets nothing new."""
        worker.pools = []
        worker.connections.close()
        self._leaving[way] = _Leaver(worker, self._sweep.clock.now, worker.inflight > 0)
        self._lines.info("worker %s is removed, with %d calls under way", worker.name, worker.inflight)

    def visit(self, now: float) -> None:
        """Let go of those whose last call has ended, and forget them some time later."""
        for way, left in tuple(self._leaving.items()):
            if left.worker.inflight:
                left.busy, left.since = True, now
            elif left.busy:
                left.busy = False
                self.let_go()
            elif now - left.since > LINGER:
                del self._leaving[way]

    def close(self) -> None:
        """Close every resting connection."""
        for worker in self._workers.values():
            worker.connections.close()


def _fit(worker: Worker, plan: Proposal) -> None:
    """Let a configuration's limits hold for a worker that was there before, though it had been removed."""
    connections = worker.connections
    connections.reopen()
    connections.idle_limit, connections.max_age = plan.limits.idle, plan.limits.max_age
    connections.connect_limit = plan.limits.connect
    connections.address.user_timeout = plan.unacknowledged


def _have_wait(pools: Iterable[Iterable[Worker]], newcomers: set[Worker]) -> None:
    """Give no calls to workers that nobody has heard of yet, where others take them."""
    for members in pools:
        if any(worker.eligible for worker in members if worker not in newcomers):
            for worker in newcomers.intersection(members):
                worker.standing.ready, worker.standing.reason = False, UNHEARD


def _nothing() -> None:
    return
