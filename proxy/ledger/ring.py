"""One process's records in memory that outlives it: opened, kept up to date and settled without a system call.

The memory is a file that no disk stands behind. The process holds a lock on it for its life, so the keeper knows the
dead by a lock that is free. A slot is used again when its settlement is durable in the log, not before.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from pathlib import Path
from secrets import token_hex
from zlib import crc32

import msgspec
from tailrace.proxy.ledger import layout
from tailrace.proxy.ledger.fitting import fitted_late, fitted_opening
from tailrace.proxy.ledger.layout import (
    BLOB,
    DURABLE_WORD,
    END_AT,
    LATE_ROOM,
    MOST,
    NUMBERS,
    OPEN,
    OPENING,
    OPENING_AT,
    PROGRESS_BITS,
    PROGRESS_WORD,
    QUEUE,
    SETTLED,
    SETTLED_WORD,
    SLOT,
    SLOT_WORDS,
    USAGE,
    USAGE_AT,
    WORDS_ROOM,
    blob,
)
from tailrace.proxy.ledger.record import Late, Opening
from tailrace.proxy.ledger.settled import Settled, bounded

SLOTS = 4096
"""For open calls and for what is settled and not yet durable: 8 MiB a process, unless it is told otherwise."""
PREFIX, UNBORN = "ring-", "unborn-"
FULL = -1
USAGE_SIZE = BLOB.size + USAGE.size

_encode = msgspec.json.Encoder().encode
_now = time.time_ns


class Ring:
    """The writing side; all methods but `create` and `close` are for the request path. One thread only.

    It lives as long as the process has calls in it: the keeper takes what is open in a closed one for orphans. A child
    forked without an exec would hold its lock beyond the process's death.
    """

    def __init__(self, fd: int, path: Path, ident: str, slots: int) -> None:
        self.path = path
        self.ident = ident
        self.slots = slots
        self._fd = fd
        self._map = mmap.mmap(fd, layout.size_of(slots), flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._view = memoryview(self._map)
        self._words = self._view.cast("Q")
        self._first = layout.slots_at(slots)
        self._first_word = self._first // 8
        self._free = list(range(slots - 1, -1, -1))
        self._generations = [0] * slots
        self._sequences = [0] * slots
        self._firsts = [0] * slots
        self._turns = [0] * slots
        self._settled = 0
        self._reclaimed = 0
        self._minted = 0

    @classmethod
    def create(cls, folder: Path, worker: str, slots: int = SLOTS) -> Ring:
        """Fresh memory in a folder; raises OSError where there is no room for it.

        All of it is had at once: without room later, a write to it would end the process.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ident = token_hex(8)
        # Under this name the keeper does not look at it: it must not find it before the lock is held.
        unborn = folder / f"{UNBORN}{ident}"
        fd = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(fd, 0, layout.size_of(slots))
            ring = cls(fd, folder / f"{PREFIX}{ident}", ident, slots)
        except BaseException:
            os.close(fd)
            unborn.unlink()
            raise
        ring._view[: layout.HEADER.size] = layout.HEADER.pack(layout.MAGIC, layout.VERSION, slots, 0, 0, 0, os.getpid())
        name = blob(_encode([ident, worker]))
        ring._view[layout.NAME_AT : layout.NAME_AT + len(name)] = name
        unborn.rename(ring.path)
        return ring

    def mint(self) -> str:
        """A charge key that nobody else has or will have."""
        self._minted += 1
        return f"{self.ident}-{self._minted}"

    def open(self, opening: Opening) -> int:
        """Begin a record; its slot, or FULL where neither memory nor the log has room now."""
        return self.open_as(opening_text(opening))

    def open_as(self, text: bytes) -> int:
        """Begin a record whose `opening_text` is there already."""
        free = self._free
        # At once, and the last first: few slots take turns, and stay in the caches of those who write and read them.
        if self._reclaimed != self._words[DURABLE_WORD]:
            self._reclaim()
        if not free:
            self._words[layout.FULL_WORD] += 1
            return FULL
        slot = free.pop()
        generation = self._generations[slot] + 1
        self._generations[slot] = generation
        self._firsts[slot] = self._sequences[slot] + 1
        self._turns[slot] = 0
        self._set_down(slot, 0, _now(), text)
        at = self._first_word + slot * SLOT_WORDS
        self._words[at + PROGRESS_WORD] = 0
        self._words[at] = generation << 2 | OPEN
        return slot

    def amend(self, slot: int, opening: Opening) -> None:
        """Set down anew what a call began with, such as other rates after a change of model."""
        text = opening_text(opening)
        turn = self._turns[slot]
        at = self._first + slot * SLOT + OPENING_AT[turn & 1]
        opened_ns: int = OPENING.unpack_from(self._map, at + BLOB.size)[2]
        self._turns[slot] = turn + 1
        self._set_down(slot, turn + 1, opened_ns, text)

    def _set_down(self, slot: int, turn: int, opened_ns: int, text: bytes) -> None:
        content = OPENING.pack(self._generations[slot], turn, opened_ns, self._firsts[slot]) + text
        size = len(content)
        at = self._first + slot * SLOT + OPENING_AT[turn & 1]
        self._map[at : at + 8 + size] = BLOB.pack(size, crc32(content)) + content

    def running(
        self, slot: int, prompt: int, completion: int, cached: int, delivered: int, estimated: bool = False
    ) -> None:
        """Note what a call has used and been sent so far; `progress` is enough where only the last two have grown."""
        self._sequences[slot] = sequence = self._sequences[slot] + 1
        try:
            numbers = USAGE.pack(sequence, prompt, completion, cached, delivered, estimated)
        except struct.error:
            bounds = map(bounded, (prompt, completion, cached, delivered))
            numbers = USAGE.pack(sequence, *bounds, True)
        at = self._first + slot * SLOT + USAGE_AT[sequence & 1]
        self._map[at : at + USAGE_SIZE] = BLOB.pack(USAGE.size, crc32(numbers)) + numbers
        self.progress(slot, completion, delivered)

    def progress(self, slot: int, completion: int, delivered: int) -> None:
        """Note a further piece of an answer: one store, as this is done for every token."""
        word = 0
        if 0 <= completion <= MOST:
            word = min(max(delivered, 0), MOST) << PROGRESS_BITS | completion
        self._words[self._first_word + slot * SLOT_WORDS + PROGRESS_WORD] = word

    def settle(self, slot: int, late: Late, settled: Settled) -> None:
        """End a record: from here on it survives this process as it is; the slot is not the caller's any more."""
        self.settle_as(slot, late_text(late), settled)

    def settle_as(self, slot: int, text: bytes, settled: Settled) -> None:
        """End a record whose `late_text` is there already."""
        generation = self._generations[slot]
        number = self._settled
        at = self._first + slot * SLOT
        try:
            numbers = _numbers(generation, number, settled)
        except struct.error:
            numbers = _numbers(generation, number, settled.bounded())
        content = numbers + text
        size = len(content)
        self._map[at + END_AT : at + END_AT + 8 + size] = BLOB.pack(size, crc32(content)) + content
        words = self._words
        words[at >> 3] = generation << 2 | SETTLED
        words[QUEUE + number % self.slots] = slot
        self._settled = words[SETTLED_WORD] = number + 1

    def is_durable(self, count: int) -> bool:
        """Whether the first `count` settlements are in the log; `settled` is the count to ask for after a settle."""
        return self._words[layout.DURABLE_WORD] >= count

    @property
    def settled(self) -> int:
        """How many records were settled."""
        return self._settled

    @property
    def refused(self) -> int:
        """How often there was no slot."""
        return self._words[layout.FULL_WORD]

    @property
    def room(self) -> int:
        """How many records could be opened now."""
        self._reclaim()
        return len(self._free)

    def _reclaim(self) -> None:
        """Take back the slots whose settlements are durable."""
        durable = self._words[layout.DURABLE_WORD]
        while self._reclaimed < durable:
            self._free.append(self._words[QUEUE + self._reclaimed % self.slots])
            self._reclaimed += 1

    def close(self) -> None:
        """Let go of the memory; the keeper copies what is left in it, and removes it."""
        self._words.release()
        self._view.release()
        self._map.close()
        os.close(self._fd)


def opening_text(opening: Opening) -> bytes:
    """What is set down of a beginning, cut where it is too long."""
    try:
        text = _encode(opening)
        return text if len(text) <= WORDS_ROOM else _encode(fitted_opening(opening))
    except UnicodeEncodeError:
        return _encode(fitted_opening(opening))


def late_text(late: Late) -> bytes:
    """What is set down of an end, cut where it is too long."""
    try:
        text = _encode(late)
        return text if len(text) <= LATE_ROOM else _encode(fitted_late(late))
    except UnicodeEncodeError:
        return _encode(fitted_late(late))


def _numbers(generation: int, number: int, s: Settled) -> bytes:
    return NUMBERS.pack(
        generation, number, _now(), s.amount, s.status, s.prompt, s.cached, s.completion, s.requests, s.delivered,
        s.lost_prompt, s.lost_completion, s.lost_amount, s.estimated,
    )  # fmt: skip
