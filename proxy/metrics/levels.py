"""Gauges, written twice a second from what the process knows anyway, so that no request pays for them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING

from tailrace.proxy.metrics import catalogue

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker
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
        self._write_workers(workers)

    def _write_workers(self, workers: Iterable[Worker]) -> None:
        present: dict[str, list[Worker]] = {}
        for worker in workers:
            present.setdefault(worker.name, []).append(worker)
        for name, (_, last) in list(self._workers.items()):
            if name not in present:
                if any(worker.inflight for worker in last):
                    present[name] = last
                else:
                    self._retire(name)
        for name, same in present.items():
            known = self._workers.get(name)
            places = known[0] if known is not None else self._places(name)
            self._workers[name] = (places, same)
            for place, level in zip(places, _levels_of(same), strict=True):
                self._slots[place] = level

    def _places(self, name: str) -> list[int]:
        return [self._register.series(family, (name,)) for family in catalogue.WORKER_LEVELS]

    def _retire(self, name: str) -> None:
        del self._workers[name]
        for family in catalogue.WORKER_LEVELS:
            self._register.retire(family, (name,))
        self._calls.forget_worker(name)


def _levels_of(same: list[Worker]) -> tuple[float, ...]:
    """The levels in the order of WORKER_LEVELS; one address in two pools with different keys is two workers."""
    standing = same[-1].standing
    return (
        sum(worker.inflight for worker in same),
        sum(worker.connections.open for worker in same),
        standing.ready and not standing.dead,
        any(worker.eligible for worker in same),
        UNKNOWN if standing.running is None else standing.running,
        UNKNOWN if standing.waiting is None else standing.waiting,
        UNKNOWN if standing.kv_use is None else standing.kv_use,
    )
