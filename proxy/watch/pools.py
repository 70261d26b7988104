"""Says in the log when the last worker of a pool that served is lost to it, and when there is one again."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker

log: Final = logging.getLogger("tailrace")


class Pools:
    """Those of one process, by their names, which outlive reloads."""

    def __init__(self) -> None:
        self._served: set[str] = set()
        self._lost: set[str] = set()

    def look(self, workers: Iterable[Worker]) -> None:
        """Compare who gets calls now with who did. Until a worker was heard of, its pool is only starting."""
        taking: dict[str, bool] = {}
        for worker in workers:
            gets_calls = worker.standing.seen is not None and worker.gets_calls
            for pool in worker.pools:
                taking[pool.name] = taking.get(pool.name, False) or gets_calls
        self._served &= taking.keys()
        self._lost &= taking.keys()
        for name, served in taking.items():
            if not served and name in self._served:
                self._served.discard(name)
                self._lost.add(name)
                log.error("pool '%s': no worker takes calls", name)
            elif served:
                self._served.add(name)
                if name in self._lost:
                    self._lost.discard(name)
                    log.info("pool '%s': a worker takes calls again", name)
