"""Which worker made which response id: a small table that all processes of a gateway share.

A stored response lives in the memory of the worker that made it, so a call that refers to it must go there. Each slot
is one aligned 64-bit word (48 bits of the id's hash, 16 of the worker's), written in one store: readers in other
processes see the old or the new word. New ids overwrite old ones; what was overwritten is refused with a reason.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable

from tailrace.proxy.fleet import Worker

SLOTS = 1 << 17
SIZE = SLOTS * 8


def shared() -> int:
    """A file descriptor of memory for one table, for the processes of a gateway to inherit."""
    fd = os.memfd_create("tailrace-births", os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE)
    return fd


class Births:
    """The table, on memory shared through a file descriptor or private to this process."""

    def __init__(self, fd: int = -1) -> None:
        self._map = mmap.mmap(fd, SIZE)
        self._slots = memoryview(self._map).cast("Q")

    def remember(self, response_id: str, worker: Worker) -> None:
        """Note who made an id."""
        slot, mark = _place(response_id)
        self._slots[slot] = mark << 16 | _sign(worker.name)

    def find(self, response_id: str, workers: Iterable[Worker]) -> Worker | None:
        """The one of `workers` that made an id, None where nobody remembers."""
        slot, mark = _place(response_id)
        word = self._slots[slot]
        if word >> 16 != mark:
            return None
        return next((worker for worker in workers if _sign(worker.name) == word & 0xFFFF), None)


def _place(response_id: str) -> tuple[int, int]:
    digest = hashlib.blake2b(response_id.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:4], "little") % SLOTS, int.from_bytes(digest[4:10], "little") or 1


def _sign(worker: str) -> int:
    return int.from_bytes(hashlib.blake2b(worker.encode(), digest_size=2).digest(), "little")
