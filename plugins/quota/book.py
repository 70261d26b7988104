"""The leases of one process in memory that outlives it: what it may spend, what it has spent.

A file of slots, mapped by the process and by the authority of its host. Each word has one writer, and eight aligned
bytes are stored whole, so that nothing is locked and a process may die between any two instructions:

    GRANTED   authority   what the process may spend by this lease, in all
    RETURNED  process     what it gives back of that, in all
    SPENT     process     what its calls have taken of it
    COUNTER   authority   what is counted: the first 8 bytes of the hash of its name; 0 where the slot is free
    BEGINS    authority   the beginning of the window

The process holds a lock on the file for its life; who can take the lock knows that it is dead.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

GRANTED: Final = 0
RETURNED: Final = 1
SPENT: Final = 2
COUNTER: Final = 3
BEGINS: Final = 4
WIDTH: Final = 8
SLOTS: Final = 16384
SUFFIX: Final = ".leases"
_SIZE: Final = SLOTS * WIDTH * 8


class Book:
    """The slots of one process; `words[at + SPENT]` is one of them, `at` the beginning of a slot."""

    def __init__(self, fd: int, path: Path) -> None:
        self.path = path
        self._fd = fd
        self._map = mmap.mmap(fd, _SIZE)
        self._bytes = memoryview(self._map)
        self.words: memoryview[int] = self._bytes.cast("q")

    @classmethod
    def create(cls, folder: Path) -> Book:
        """A book of this process, held until it is closed or the process has died."""
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.ftruncate(fd, _SIZE)
        return cls(fd, path)

    @classmethod
    def attach(cls, path: Path) -> Book:
        """The book of another process; raises OSError where there is none, ValueError where that is no book."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(fd).st_size != _SIZE:
            os.close(fd)
            raise ValueError(f"{path} is no book of leases")
        return cls(fd, path)

    def abandoned(self) -> bool:
        """Whether the process whose book this is has died."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def used(self) -> Iterator[int]:
        """Where each slot in use begins."""
        words = self.words
        return (at for at in range(0, SLOTS * WIDTH, WIDTH) if words[at + COUNTER])

    def close(self, *, remove: bool = False) -> None:
        """Let go of it."""
        self.words.release()
        self._bytes.release()
        self._map.close()
        os.close(self._fd)
        if remove:
            self.path.unlink(missing_ok=True)


def mark_of(name: str) -> int:
    """The word that stands for a counter; never 0."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True) or 1
