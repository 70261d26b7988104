"""What all processes of a host know of open circuits: a file in shared memory, and locks that end with their holder.

The file has a slot for each worker that was ever in trouble. Slots are written under the table's lock, and `epoch`
grows with each change, so that a process looks at one word to see whether anything is new. Times are of the monotonic
clock, which is the same for all processes of a host.

A probe of a worker is a lock on a byte of its own. The kernel gives it to one process of the host, and takes it back
when that process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SLOTS: Final = 1024
NAME: Final = "breaker"
_MAGIC: Final = int.from_bytes(b"circuit1", "little")
_HEADER: Final = 64
_SLOT: Final = 256
_WORDS: Final = _SLOT // 8
_NAME_AT: Final = 64
_LONGEST: Final = _SLOT - _NAME_AT
_SIZE: Final = _HEADER + SLOTS * _SLOT
_TABLE: Final = 0
_PROBES: Final = 1
# The words of the header, and of a slot.
_VERSION, _EPOCH = 0, 1
_MARK, _OPEN, _SINCE, _UNTIL, _TIMES, _WHY, _LENGTH, _SPARED = range(8)
_FLOCK: Final = struct.Struct("hhqqi0q")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What holds for a worker since a change; `until` and `times` are those of the last time that it was opened."""

    open: bool = False
    since: int = 0
    until: int = 0
    times: int = 0
    why: int = 0


CLEAN: Final = Verdict()


class Board:
    """One process's view of the file, under an open file of its own: locks are between open files."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map = mmap.mmap(fd, _SIZE)
        self._bytes = memoryview(self._map)
        self._words: memoryview[int] = self._bytes.cast("q")

    @classmethod
    def open(cls, folder: Path) -> Board:
        """The board of a folder, made where it is missing or is none."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder / "circuits", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(fd).st_size != _SIZE:
            os.ftruncate(fd, 0)
            os.ftruncate(fd, _SIZE)
        board = cls(fd)
        with board.locked() as mine:
            if mine and board._words[_VERSION] != _MAGIC:
                board._bytes[:] = bytes(_SIZE)
                board._words[_VERSION] = _MAGIC
        return board

    def close(self) -> None:
        """Let go of it, and of every lock."""
        self._words.release()
        self._bytes.release()
        self._map.close()
        os.close(self._fd)

    @property
    def epoch(self) -> int:
        """Grows with every change."""
        return self._words[_EPOCH]

    def known(self) -> Iterator[tuple[str, int]]:
        """The names of the workers that have a slot, with its number."""
        for slot in range(SLOTS):
            if self._words[self._at(slot) + _MARK]:
                yield self._name(slot), slot

    def read(self, slot: int) -> Verdict:
        """What holds for a slot's worker; may be half of a change while another process makes one."""
        at = self._at(slot)
        is_open, since, until, times, why = self._words[at + _OPEN : at + _LENGTH].tolist()
        return Verdict(bool(is_open), since, until, times, why)

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the table's lock; False where another process has it at the moment."""
        mine = self._lock(_TABLE)
        try:
            yield mine
        finally:
            if mine:
                self._unlock(_TABLE)

    def place(self, name: str) -> int | None:
        """The slot of a worker, taken where it has none; None where all are in use. Needs the table's lock."""
        mark = _mark_of(name)
        free = None
        for slot in range(SLOTS):
            found = self._words[self._at(slot) + _MARK]
            if found == mark:
                return slot
            if not found:
                # Slots are filled in order: behind this one there is none.
                free = slot
                break
        if free is None:
            free = self._forgettable()
        if free is not None:
            self._name_slot(free, name, mark)
        return free

    def write(self, slot: int, verdict: Verdict) -> None:
        """Set down what holds from now on. Needs the table's lock."""
        at = self._at(slot)
        words = (int(verdict.open), verdict.since, verdict.until, verdict.times, verdict.why)
        for offset, word in enumerate(words, at + _OPEN):
            self._words[offset] = word
        self._words[_EPOCH] += 1

    def spare(self, slot: int, spared: bool) -> None:
        """Set down whether its pool's floor keeps a worker in although it is open; nothing is decided by that."""
        self._words[self._at(slot) + _SPARED] = spared

    def spares(self, slot: int) -> bool:
        """Whether the floor keeps it in, as the process says that looked last."""
        return bool(self._words[self._at(slot) + _SPARED])

    def take_probe(self, slot: int) -> bool:
        """Become the one process of the host that may probe a worker."""
        return self._lock(_PROBES + slot)

    def return_probe(self, slot: int) -> None:
        """Let others probe it."""
        self._unlock(_PROBES + slot)

    def _forgettable(self) -> int | None:
        """The slot whose worker has been well for longest; an open one is never taken."""
        well = [(verdict.since, slot) for slot in range(SLOTS) if not (verdict := self.read(slot)).open]
        return min(well)[1] if well else None

    def _name_slot(self, slot: int, name: str, mark: int) -> None:
        at, text = self._at(slot), name.encode()[:_LONGEST]
        for offset in range(at + _OPEN, at + _SPARED + 1):
            self._words[offset] = 0
        begin = _HEADER + slot * _SLOT + _NAME_AT
        self._bytes[begin : begin + len(text)] = text
        self._words[at + _LENGTH] = len(text)
        self._words[at + _MARK] = mark

    def _name(self, slot: int) -> str:
        begin = _HEADER + slot * _SLOT + _NAME_AT
        length = min(max(self._words[self._at(slot) + _LENGTH], 0), _LONGEST)
        return bytes(self._bytes[begin : begin + length]).decode(errors="replace")

    @staticmethod
    def _at(slot: int) -> int:
        return _HEADER // 8 + slot * _WORDS

    def _lock(self, byte: int) -> bool:
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(self, byte: int) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))


def folder_in(shared: Path) -> Path:
    """Where the board of a host is."""
    return shared / NAME


def _mark_of(name: str) -> int:
    """The word that stands for a name; never 0."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True) or 1
