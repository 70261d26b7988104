"""What routing knows of one pool: its ring, its weights, which of its workers are near, and what is usual there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

from tailrace.plugins.route.ring import Ring
from tailrace.plugins.route.tempo import Tempo
from tailrace.plugins.route.usual import ROWS, Usual
from tailrace.plugins.route.worth import Worth
from tailrace.proxy.plugin import Key

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Pool, Worker

TEMPO: Final[Key[Tempo]] = Key("tempo")


class Grounds:
    """Follows a pool's members: what is built of them is built anew by the first call after a change."""

    __slots__ = (
        "_eligible",
        "_known",
        "_near",
        "_region",
        "_set",
        "even",
        "expected",
        "mean_load",
        "pool",
        "ring",
        "usual",
        "workers",
        "worth",
    )

    def __init__(self, pool: Pool, decay: float, region: str | None) -> None:
        self.pool = pool
        self._region = region
        self.workers: Sequence[Worker] = ()
        self._known: list[tuple[Worker, float, str]] = []
        self._eligible: Sequence[Worker] = ()
        self._set: frozenset[Worker] = frozenset()
        self._near: list[Worker] = []
        self.ring = Ring(())
        self.even = True
        """Whether all weights are the same."""
        self.expected = [0.0] * ROWS
        """Seconds to first content by size, of the better of two that were drawn; smoothed over choices."""
        self.mean_load = 0.0
        """Calls under way at a worker, smoothed over those that were drawn."""
        self.worth = [Worth() for _ in range(ROWS)]
        """What it is worth to go where a prompt's beginning was met before, by size."""
        self.usual = _usual_of(pool, decay)
        self.usual.decay = decay
        self.usual.slots = self.usual.slots or float(pool.concurrency)
        self.follow()

    def follow(self) -> None:
        """Bring the ring up to the pool's members, their weights and regions."""
        self.workers = workers = self.pool.workers
        known = [(worker, worker.weight, worker.region) for worker in workers]
        if known == self._known:
            return
        self._known = known
        self._eligible = ()
        self.even = len({weight for _, weight, _ in known}) < 2
        near = [worker for worker in workers if worker.region == self._region] if self._region is not None else []
        self.ring = Ring(near or workers)

    def tempo_of(self, worker: Worker) -> Tempo:
        """What was learnt of a worker, in whatever chain."""
        tempo: Tempo | None = worker.learnt.get(TEMPO)
        if tempo is None:
            worker.learnt[TEMPO] = tempo = Tempo(self.usual, crc32(worker.name.encode()))
        return tempo

    def lead(self, first: int, second: int, eligible: Sequence[Worker]) -> tuple[Worker | None, Worker | None]:
        """Where two keys lead among many workers: never to the same one."""
        among = self._among(eligible)
        one = self.ring.lead(first, among)
        return one, self.ring.lead(second, among, one)

    def near(self, eligible: Sequence[Worker]) -> Sequence[Worker]:
        """Those of many that are in the preferred region."""
        self._among(eligible)
        return self._near

    def _among(self, eligible: Sequence[Worker]) -> frozenset[Worker]:
        # Lists of eligible workers are replaced, never changed.
        if eligible is not self._eligible:
            self._eligible = eligible
            self._set = frozenset(eligible)
            region = self._region
            self._near = [worker for worker in eligible if worker.region == region] if region is not None else []
        return self._set


def _usual_of(pool: Pool, decay: float) -> Usual:
    """What was usual before a reload, where a worker remembers it."""
    for worker in pool.workers:
        tempo: Tempo | None = worker.learnt.get(TEMPO)
        if tempo is not None:
            return tempo.usual
    return Usual(decay)
