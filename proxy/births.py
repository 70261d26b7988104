"""Which worker made which response id, for which model: a small table that all processes of a gateway share.

A stored response lives in the memory of the worker that made it, so a call that refers to it must go there. Each slot
is one aligned 64-bit word (32 bits of the id's hash, 16 of the model's, 16 of the worker's), written in one store:
readers in other processes see the old or the new word. New ids overwrite old ones; what was overwritten is refused with
a reason.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable

from tailrace.proxy.fleet import ModelEntry, Worker

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

    def remember(self, response_id: str, worker: Worker, model: str) -> None:
        """Note who made an id, and the name that the client gave the model."""
        slot, mark = _place(response_id)
        self._slots[slot] = mark << 32 | _sign(model) << 16 | _sign(worker.name)

    def find(self, response_id: str, workers: Iterable[Worker]) -> Worker | None:
        """The one of `workers` that made an id, None where nobody remembers."""
        word = self._word(response_id)
        return next((worker for worker in workers if _sign(worker.name) == word & 0xFFFF), None) if word else None

    def model(self, response_id: str, entries: Iterable[ModelEntry]) -> ModelEntry | None:
        """The one of `entries` that an id was asked of, None where that is none of them."""
        sign = self._word(response_id) >> 16 & 0xFFFF
        return next((entry for entry in entries if _sign(entry.name) == sign), None)

    def _word(self, response_id: str) -> int:
        """What is noted of an id; 0 where nothing is."""
        slot, mark = _place(response_id)
        word = self._slots[slot]
        return word if word >> 32 == mark else 0


def _place(response_id: str) -> tuple[int, int]:
    digest = hashlib.blake2b(response_id.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:4], "little") % SLOTS, int.from_bytes(digest[4:8], "little") or 1


def _sign(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=2).digest(), "little")
