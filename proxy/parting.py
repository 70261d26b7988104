"""Workers that are drained within a time: what still runs there when it is over goes on elsewhere, or ends honestly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import DRAINED, FAILURES
from tailrace.proxy.watch.asked import Asked
from tailrace.proxy.watch.subscription import Subscription

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker

log: Final = logging.getLogger("tailrace")


class Parting:
    """The drains of one process that have a limit, by the names of their workers."""

    def __init__(self, workers: Callable[[], Iterable[Worker]]) -> None:
        self._workers = workers
        self._limits: dict[str, asyncio.TimerHandle] = {}

    def begin(self, name: str, limit: float) -> None:
        """Give the calls of a worker that has just been drained `limit` seconds."""
        self.end(name)
        self._limits[name] = asyncio.get_running_loop().call_later(limit, self._over, name)

    def end(self, name: str) -> None:
        """A worker's calls have all the time that they need."""
        limit = self._limits.pop(name, None)
        if limit is not None:
            limit.cancel()

    def left(self, name: str) -> float | None:
        """Seconds that a worker's calls still have, None where they have all that they need."""
        limit = self._limits.get(name)
        return None if limit is None else round(max(0.0, limit.when() - asyncio.get_running_loop().time()), 1)

    def keep(self, names: Iterable[str]) -> None:
        """End the limits of all other workers."""
        for name in self._limits.keys() - set(names):
            self.end(name)

    def _over(self, name: str) -> None:
        del self._limits[name]
        for worker in self._workers():
            if worker.name == name and worker.drained:
                part(worker)


def part(worker: Worker) -> None:
    """Let every call that runs at a worker leave it now."""
    calls = [
        connection
        for connection in worker.connections.busy
        if connection.sink is not None and not isinstance(connection.sink, Subscription | Asked)
    ]
    if calls:
        log.info("worker %s is left by what runs there (%d): its time to finish is over", worker.name, len(calls))
    # One that cannot leave keeps none of the others.
    for connection in calls:
        try:
            connection.part(DRAINED)
        except FAILURES:
            log.exception("a call could not leave worker %s", worker.name)
    for doubted in worker.connections.connecting:
        try:
            doubted(DRAINED.but(sent=False), True)
        except FAILURES:
            log.exception("a call could not leave worker %s", worker.name)
