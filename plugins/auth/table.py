"""All keys of a host in one file of shared memory: written by the host part, looked up by every process.

A hash table with open addressing: a slot has a digest and a word, which is the place of the key's record in the heap
with its status in the low byte. One store of that word publishes, changes or revokes a key for all processes at once;
a reader that has seen the same word before knows that nothing about the key has changed.
"""

from __future__ import annotations

import hmac
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.plugins.auth.record import Status

_HEAD: Final = struct.Struct("=8sQQ")  # what it is, slots, bytes of heap
_ENTRY: Final = struct.Struct("=dHI")  # until, length of the id, length of the grants
_MAGIC: Final = b"tr-keys1"
_START: Final = 64
_DIGEST: Final = 32
_SLOT: Final = _DIGEST + 8
_SMALLEST: Final = 1024
_FULL: Final = 0.7
_SPARE_HEAP: Final = 1 << 18


class Full(Exception):  # noqa: N818 - a fact about the table
    """No room for another key: a larger table is needed."""


class Stored(NamedTuple):
    """One key as the table has it."""

    digest: bytes
    status: int
    until: float
    id: str
    grants: bytes


class KeyTable:
    """A table over mapped memory; `words` and `slot_of` are what a lookup takes."""

    def __init__(self, memory: mmap.mmap) -> None:
        view = memoryview(memory)
        if len(view) < _START:
            raise ValueError("this is no table of keys")
        magic, slots, heap = _HEAD.unpack_from(view)
        self.slots: int = slots
        self.heap: int = heap
        if magic != _MAGIC or _START + self.slots * _SLOT + self.heap > len(view):
            raise ValueError("this is no table of keys")
        self._mask: int = slots - 1
        self._digests_at = _START + self.slots * 8
        self._heap_at = _START + self.slots * _SLOT
        self._view = view
        self.words = view[_START : self._digests_at].cast("Q")

    @classmethod
    def open(cls, path: Path) -> KeyTable:
        """Map a table for looking things up; raises OSError or ValueError."""
        with path.open("rb") as file:
            return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def slot_of(self, digest: bytes) -> int:
        """Where a digest stands, or -1."""
        slot = int.from_bytes(digest[:8], "little") & self._mask
        while self.words[slot]:
            at = self._digests_at + slot * _DIGEST
            if hmac.compare_digest(self._view[at : at + _DIGEST], digest):
                return slot
            slot = slot + 1 & self._mask
        return -1

    def entry(self, slot: int, word: int) -> Stored:
        """What a word of a slot stands for."""
        at = self._heap_at + (word >> 8)
        until, id_length, length = _ENTRY.unpack_from(self._view, at)
        at += _ENTRY.size
        key_id = bytes(self._view[at : at + id_length]).decode()
        grants = bytes(self._view[at + id_length : at + id_length + length])
        digest = self._digests_at + slot * _DIGEST
        return Stored(bytes(self._view[digest : digest + _DIGEST]), word & 0xFF, until, key_id, grants)


class WritableTable(KeyTable):
    """The host part's own view of it."""

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__(memory)
        self.count = 0
        self._used = 0
        self._most = int(self.slots * _FULL)

    @classmethod
    def make(cls, path: Path, keys: int, heap: int) -> WritableTable:
        """An empty table with room for so many keys; raises OSError where the memory cannot be had."""
        slots = _SMALLEST
        while keys > slots * _FULL:
            slots *= 2
        heap += heap // 4 + _SPARE_HEAP
        size = _START + slots * _SLOT + heap
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Memory that is not there would only show when it is written to, by a signal that ends the program.
            os.posix_fallocate(fd, 0, size)
            memory = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        _HEAD.pack_into(memory, 0, _MAGIC, slots, heap)
        return cls(memory)

    @property
    def used(self) -> int:
        """Bytes of the heap that are taken, by records that were replaced too."""
        return self._used

    def put(self, stored: Stored) -> None:
        """Add a key, or replace what stands under its digest; raises Full."""
        key_id = stored.id.encode()
        size = _ENTRY.size + len(key_id) + len(stored.grants)
        slot = self._place_of(stored.digest)
        known = self.words[slot]
        if self._used + size > self.heap or (not known and self.count >= self._most):
            raise Full
        offset, self._used = self._used, self._used + size
        at = self._heap_at + offset
        _ENTRY.pack_into(self._view, at, stored.until, len(key_id), len(stored.grants))
        self._view[at + _ENTRY.size : at + size] = key_id + stored.grants
        if not known:
            at = self._digests_at + slot * _DIGEST
            self._view[at : at + _DIGEST] = stored.digest
            self.count += 1
        self.words[slot] = offset << 8 | stored.status

    def _place_of(self, digest: bytes) -> int:
        """Where a digest stands, or would."""
        words, view, start = self.words, self._view, self._digests_at
        slot = int.from_bytes(digest[:8], "little") & self._mask
        while words[slot]:
            at = start + slot * _DIGEST
            if view[at : at + _DIGEST] == digest:
                break
            slot = slot + 1 & self._mask
        return slot

    def mark(self, digest: bytes, status: Status) -> None:
        """Change a key's status where it stands."""
        slot = self.slot_of(digest)
        if slot >= 0:
            self.words[slot] = self.words[slot] & ~0xFF | status

    def stored(self) -> Iterator[Stored]:
        """Every key that is not revoked."""
        for slot in range(self.slots):
            word = self.words[slot]
            if word and word & 0xFF != Status.REVOKED:
                yield self.entry(slot, word)
