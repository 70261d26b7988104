"""A ring on which keys lead to workers, the same in every process and gateway that knows the same workers.

Who joins or leaves takes over, or leaves behind, its own share of the keys and moves no others. The ring is of all
workers of a pool: whoever takes no calls at the moment is passed over, which moves nothing else and builds nothing.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker

_MOST: Final = 64
"""Points of a worker with the usual weight. A large pool has fewer, and as even shares: there are more workers."""
_IN_ALL: Final = 4096
_LEAST: Final = 8
_DIGEST: Final = struct.Struct("<16I")
_STEPS: Final = 256
"""Points that are passed over at most."""


class Ring:
    """Points of 32 bits, each a worker's; those with more weight have more."""

    __slots__ = ("_owners", "_points")

    def __init__(self, workers: Sequence[Worker]) -> None:
        points = max(min(_IN_ALL // max(len(workers), 1), _MOST), _LEAST)
        placed = [(point, worker) for worker in workers for point in _points_of(worker, points)]
        placed.sort(key=_point)
        self._points = [point for point, _ in placed]
        self._owners = [worker for _, worker in placed]

    def lead(self, key: int, among: Container[Worker], besides: Worker | None = None) -> Worker | None:
        """The first worker from a key of 32 bits on that is one of these, but not `besides`."""
        owners = self._owners
        count = len(owners)
        at = bisect_left(self._points, key)
        for _ in range(min(count, _STEPS)):
            if at >= count:
                at = 0
            worker = owners[at]
            if worker in among and worker is not besides:
                return worker
            at += 1
        return None


def _point(placed: tuple[int, Worker]) -> int:
    return placed[0]


def _points_of(worker: Worker, usual: int) -> Iterable[int]:
    """Where a worker stands; fewer points are the first of more, so that gateways agree whatever they count."""
    count = min(round(usual * worker.weight), usual * 16)
    name = worker.name.encode()
    found: list[int] = []
    while len(found) < count:
        found += _DIGEST.unpack(blake2b(name, digest_size=64, salt=struct.pack("<Q", len(found))).digest())
    return found[:count]
