"""Gauges, written twice a second from what the process knows anyway, so that no request pays for them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from math import isnan
from typing import TYPE_CHECKING

from tailrace.proxy.fleet import SILENT, SUSPECT
from tailrace.proxy.metrics import catalogue

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Pool, Worker
    from tailrace.proxy.metrics.calls import CallCounts
    from tailrace.proxy.metrics.family import Family
    from tailrace.proxy.metrics.register import Register
    from tailrace.proxy.service import Service

UNKNOWN = float("nan")
"""A gauge with this value is not shown."""


class Levels:
    """The gauges of one process."""

    def __init__(self, register: Register, calls: CallCounts) -> None:
        self._register = register
        self._calls = calls
        self._slots = register.segment.slots
        self._workers: dict[str, tuple[list[int], list[Worker]]] = {}
        self._set(catalogue.START_TIME, time.time())
        self._slots[register.series(catalogue.BUILD_INFO, (version("tailrace"),))] = 1.0
        self._of_process = [
            register.series(family, ())
            for family in (
                catalogue.ACTIVE,
                catalogue.CONNECTIONS,
                catalogue.BODY_MEMORY,
                catalogue.BODY_MEMORY_LIMIT,
                catalogue.GENERATION,
            )
        ]
        self._pools: dict[str, list[int]] = {}

    def _set(self, family: Family, value: float) -> None:
        self._slots[self._register.series(family, ())] = value

    def write(self, service: Service, workers: Iterable[Worker]) -> None:
        """Write all gauges as they are now."""
        slots = self._slots
        levels = (
            service.active,
            len(service.connections),
            service.memory.used,
            service.memory.limit,
            service.chain.generation,
        )
        for slot, level in zip(self._of_process, levels, strict=True):
            slots[slot] = level
        self._write_pools(service.chain.pools)
        self._write_workers(workers)

    def _write_pools(self, pools: Mapping[str, Pool]) -> None:
        for name in self._pools.keys() - pools.keys():
            del self._pools[name]
            for family in catalogue.POOL_LEVELS:
                self._register.retire(family, (name,))
        for name, pool in pools.items():
            places = self._pools.get(name)
            if places is None:
                places = self._pools[name] = [
                    self._register.series(family, (name,)) for family in catalogue.POOL_LEVELS
                ]
            for place, level in zip(places, (pool.taking, _waiting_in(pool)), strict=True):
                self._slots[place] = level

    def _write_workers(self, workers: Iterable[Worker]) -> None:
        present: dict[str, list[Worker]] = {}
        for worker in workers:
            present.setdefault(worker.name, []).append(worker)
        gone = set()
        for name, (_, last) in self._workers.items():
            if name not in present:
                if any(worker.inflight for worker in last):
                    present[name] = last
                else:
                    gone.add(name)
        if gone:
            self._retire(gone)
        for name, same in present.items():
            known = self._workers.get(name)
            places = known[0] if known is not None else self._places(name)
            self._workers[name] = (places, same)
            for place, level in zip(places, _levels_of(same), strict=True):
                self._slots[place] = level

    def _places(self, name: str) -> list[int]:
        return [self._register.series(family, (name,)) for family in catalogue.WORKER_LEVELS]

    def _retire(self, names: set[str]) -> None:
        for name in names:
            del self._workers[name]
            for family in catalogue.WORKER_LEVELS:
                self._register.retire(family, (name,))
        self._calls.forget_workers(names)


def _waiting_in(pool: Pool) -> float:
    said = [worker.standing.waiting for worker in pool.eligible if SILENT not in worker.bars]
    return min((waiting for waiting in said if waiting is not None), default=UNKNOWN)


def _levels_of(same: list[Worker]) -> tuple[float, ...]:
    """The levels in the order of WORKER_LEVELS; one address in two pools with different keys is two workers."""
    standing = same[-1].standing
    return (
        sum(worker.inflight for worker in same),
        sum(worker.connections.open for worker in same),
        standing.ready and not standing.dead and not any(SILENT in worker.bars for worker in same),
        any(worker.gets_calls for worker in same),
        UNKNOWN if standing.running is None else standing.running,
        UNKNOWN if standing.waiting is None else standing.waiting,
        UNKNOWN if standing.kv_use is None else standing.kv_use,
        any(SUSPECT in worker.bars for worker in same) and not standing.dead,
        max((worker.sent_after_death for worker in same if not isnan(worker.sent_after_death)), default=UNKNOWN),
    )
