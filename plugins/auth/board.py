"""A page of shared memory on which the host part says what holds now: which table, which key sets, how fresh.

The page outlives supervisors, so processes of an old one follow the tables of the next.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Final

_SIZE: Final = 4096
_TABLE, _SETS, _CONFIRMED, _KEYS = range(4)


class Board:
    """Reads are plain looks into memory."""

    def __init__(self, folder: Path, *, writable: bool = False) -> None:
        self._folder = folder
        path = folder / "auth.board"
        fd = os.open(path, (os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY) | os.O_CLOEXEC, 0o600)
        try:
            if writable:
                os.posix_fallocate(fd, 0, _SIZE)
            memory = mmap.mmap(fd, _SIZE, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        finally:
            os.close(fd)
        self._words = memoryview(memory).cast("Q")

    @property
    def table(self) -> int:
        """The number of the present table of keys; 0 before the first."""
        return self._words[_TABLE]

    @property
    def sets(self) -> int:
        """The number of the present file of key sets."""
        return self._words[_SETS]

    @property
    def keys(self) -> int:
        """How many keys the table has."""
        return self._words[_KEYS]

    @property
    def age(self) -> float:
        """Seconds since every store was last heard of; without end before that."""
        confirmed = self._words[_CONFIRMED]
        age = (time.monotonic_ns() - confirmed) / 1e9
        # The page may be older than the clock, where it is in a file that outlived a restart of the machine.
        return age if confirmed and age >= 0 else float("inf")

    def table_path(self, number: int) -> Path:
        """Where the table of a number is."""
        return self._folder / f"auth.keys.{number}"

    def sets_path(self, number: int) -> Path:
        """Where the key sets of a number are."""
        return self._folder / f"auth.sets.{number}"

    def confirm(self, at_ns: int, keys: int) -> None:
        """Every store was heard of at this time of the monotonic clock, 0 for not yet."""
        self._words[_CONFIRMED] = at_ns
        self._words[_KEYS] = keys

    def show_table(self, number: int) -> None:
        """Processes turn to another table, and what older ones were is let go: who maps one keeps it."""
        self._words[_TABLE] = number
        self._tidy("auth.keys.*", self.table_path(number))

    def show_sets(self, number: int) -> None:
        """The same for the key sets."""
        self._words[_SETS] = number
        self._tidy("auth.sets.*", self.sets_path(number))

    def _tidy(self, pattern: str, kept: Path) -> None:
        for path in self._folder.glob(pattern):
            if path != kept:
                path.unlink(missing_ok=True)
