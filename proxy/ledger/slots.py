"""One process's ring as the keeper reads it, while that process writes to it or after its death."""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import msgspec
from tailrace.proxy.ledger import layout
from tailrace.proxy.ledger.entry import Entry, Words
from tailrace.proxy.ledger.layout import BLOB, OPEN, OPENING, SETTLED, SLOT
from tailrace.proxy.ledger.record import ORPHAN, Late, Opening
from tailrace.proxy.ledger.ring import UNBORN
from tailrace.proxy.ledger.settled import bounded
from tailrace.proxy.tariff import charge

_NEWBORN = 10.0
_REMEMBERED = 4096
_BEGINS = b'["'
_BETWEEN = b'","'
_QUOTE = b'"'
_ESCAPE = b"\\"
_LONGEST_END = layout.END_ROOM - BLOB.size
_LONGEST_OPENING = layout.OPENING_ROOM - BLOB.size
_END = layout.END_AT + BLOB.size
_LATE = _END + layout.NUMBERS.size
_HALVES = tuple(at + BLOB.size for at in layout.OPENING_AT)

_opening = msgspec.json.Decoder(Opening).decode
_late = msgspec.json.Decoder(Late).decode
_name = msgspec.json.Decoder(tuple[str, str]).decode


class NoRing(Exception):  # noqa: N818 - a fact about the file
    """A file that is no ring of this version."""


class Slots:
    """The reading side of a ring."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.slots, self.pid = self._header()
            self._map = mmap.mmap(self._fd, layout.size_of(self.slots))
        except BaseException:
            os.close(self._fd)
            raise
        self._view = memoryview(self._map)
        self._words = self._view.cast("Q")
        self._first = layout.slots_at(self.slots)
        self._known: dict[tuple[bytes, bytes], Words] = {}
        name = self._blob(layout.NAME_AT, layout.NAME_ROOM)
        if name is None:
            self.close()
            raise NoRing(f"{path} is no ring: nobody's name is in it")
        self.ident, self.worker = _name(name)

    def _header(self) -> tuple[int, int]:
        head = os.pread(self._fd, layout.HEADER.size, 0)
        if len(head) < layout.HEADER.size:
            raise NoRing(f"{self.path} is no ring: it is too short")
        magic, version, slots, _, _, _, pid = layout.HEADER.unpack(head)
        if magic != layout.MAGIC or version != layout.VERSION:
            raise NoRing(f"{self.path} is no ring of version {layout.VERSION}")
        if os.fstat(self._fd).st_size != layout.size_of(slots):
            raise NoRing(f"{self.path} is no ring: its size is not that of {slots} slots")
        return slots, pid

    @property
    def settled(self) -> int:
        """How many records were settled by the process."""
        return self._words[layout.SETTLED_WORD]

    @property
    def durable(self) -> int:
        """How many of them are in the log."""
        return self._words[layout.DURABLE_WORD]

    @durable.setter
    def durable(self, count: int) -> None:
        self._words[layout.DURABLE_WORD] = count

    @property
    def refused(self) -> int:
        """How often there was no slot for a record."""
        return self._words[layout.FULL_WORD]

    def dead(self) -> bool:
        """Whether the process is gone; once it is, the lock is ours."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def in_use(self) -> int:
        """How many slots are open."""
        first = self._first // 8
        return sum(self._words[first + slot * layout.SLOT_WORDS] & 3 == OPEN for slot in range(self.slots))

    def settlement(self, number: int) -> Entry | None:
        """A settled record by its number; None where it cannot be read (yet)."""
        slot = self._words[layout.QUEUE + number % self.slots]
        return self._settled(slot, number) if slot < self.slots else None

    def left_open(self, now_ns: int) -> Iterator[tuple[int, Entry | None]]:
        """What the dead process left beyond its queue, with the slot: settled but not queued, or open."""
        queued = self.settled
        for slot in range(self.slots):
            state = self._words[self._at(slot) // 8] & 3
            if state == OPEN:
                yield slot, self._orphan(slot, now_ns)
            elif state == SETTLED and (numbers := self._numbers(slot)) is not None and numbers[1] >= queued:
                yield slot, self._settled(slot, numbers[1])

    def raw(self, slot: int) -> bytes:
        """The bytes of a slot."""
        at = self._at(slot % self.slots)
        return bytes(self._view[at : at + SLOT])

    def queued_slot(self, number: int) -> int:
        """Where a settlement lies, according to the queue."""
        return self._words[layout.QUEUE_AT // 8 + number % self.slots]

    def close(self) -> None:
        """Let go of the memory, and of the lock if it was had."""
        self._words.release()
        self._view.release()
        self._map.close()
        os.close(self._fd)

    def remove(self) -> None:
        """Let go of it for ever: everything in it is in the log."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        self.close()

    def _at(self, slot: int) -> int:
        return self._first + slot * SLOT

    def _settled(self, slot: int, number: int) -> Entry | None:
        at = self._first + slot * SLOT
        # A copy, so that what the checksums vouch for is what is taken.
        raw: bytes = self._map[at : at + SLOT]
        found = layout.SETTLED_SLOT.unpack_from(raw)
        generation, state = found[0] >> 2, found[0] & 3
        size = found[1]
        if state != SETTLED or found[3] != generation or found[4] != number:
            return None
        if not layout.NUMBERS.size < size <= _LONGEST_END or crc32(raw[_END : _END + size]) != found[2]:
            return None
        late = raw[_LATE : _END + size]
        best: bytes | None = None
        turn = opened_ns = 0
        for half in (17, 23):
            size = found[half]
            if found[half + 2] != generation or not OPENING.size < size <= _LONGEST_OPENING:
                continue
            begins = _HALVES[half > 17]
            content = raw[begins : begins + size]
            if crc32(content) == found[half + 1] and (best is None or found[half + 3] > turn):
                best, turn, opened_ns = content[OPENING.size :], found[half + 3], found[half + 4]
        return None if best is None else self._entry(best, opened_ns, late, found[3:17])

    def _entry(self, opening: bytes, opened_ns: int, late: bytes, numbers: tuple[int, ...]) -> Entry:
        """The entry of a settled record; the words of its opening behind key and call are mostly known."""
        between = opening.find(_BETWEEN, 2)
        ends = opening.find(_QUOTE, between + 3) if between > 0 else -1
        if ends < 0 or not opening.startswith(_BEGINS) or opening.find(_ESCAPE, 0, ends) >= 0:
            whole = _opening(opening)
            return Entry(
                Words(whole, _late(late), self.worker), whole.charge_key, whole.call, False, opened_ns, numbers
            )
        which = opening[ends:], late
        known = self._known.get(which)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[which] = Words(_opening(opening), _late(late), self.worker)
        return Entry(known, opening[2:between].decode(), opening[between + 3 : ends].decode(), True, opened_ns, numbers)

    def _orphan(self, slot: int, now_ns: int) -> Entry | None:
        """What an open record comes to: its last running usage, at the rates that it began with."""
        generation = self._words[self._at(slot) // 8] >> 2
        begun = self._begun(slot, generation)
        if begun is None:
            return None
        opened_ns, first, opening = begun
        usage = self._usage(slot, first)
        prompt, completion, cached, delivered, estimated = usage or (0, 0, 0, 0, 0)
        requests = 0 if usage is None else 1  # without usage, its client got nothing
        rates = opening.rates
        amount = 0 if rates is None else bounded(charge(rates, prompt, cached, completion, requests))
        numbers = generation, 0, now_ns, amount, 0, prompt, cached, completion, requests, delivered, 0, 0, 0, estimated
        words = Words(opening, Late(ORPHAN), self.worker)
        return Entry(words, opening.charge_key, opening.call, False, opened_ns, numbers)

    def _begun(self, slot: int, generation: int) -> tuple[int, int, Opening] | None:
        """When a record began, its first sequence, and what was set down last of how it began."""
        best: tuple[int, int, int, bytes] | None = None
        for half in layout.OPENING_AT:
            content = self._blob(self._at(slot) + half, layout.OPENING_ROOM)
            if content is not None:
                of, turn, opened_ns, first = OPENING.unpack_from(content)
                if of == generation and (best is None or turn > best[0]):
                    best = turn, opened_ns, first, content[OPENING.size :]
        return None if best is None else (best[1], best[2], _opening(best[3]))

    def _usage(self, slot: int, first: int) -> tuple[int, int, int, int, int] | None:
        """The last usage that was set down of the record whose sequence begins at `first`."""
        best: tuple[int, ...] | None = None
        for half in layout.USAGE_AT:
            content = self._blob(self._at(slot) + half, layout.USAGE_ROOM)
            if content is not None:
                usage = layout.USAGE.unpack(content)
                if usage[0] >= first and (best is None or usage[0] > best[0]):
                    best = usage
        if best is None:
            return None
        _, prompt, completion, cached, delivered, estimated = best
        progress = self._words[self._at(slot) // 8 + layout.PROGRESS_WORD]
        if progress & layout.MOST > completion:
            delivered, completion = divmod(progress, layout.MOST + 1)
        return prompt, completion, cached, delivered, estimated

    def _numbers(self, slot: int) -> tuple[int, ...] | None:
        content = self._blob(self._at(slot) + layout.END_AT, layout.END_ROOM)
        return None if content is None else layout.NUMBERS.unpack_from(content)

    def _blob(self, at: int, room: int) -> bytes | None:
        """What was set down at a place; None where that is nothing, or the half of something."""
        length, checksum = BLOB.unpack_from(self._view, at)
        if not 0 < length <= room - BLOB.size:
            return None
        content = bytes(self._view[at + BLOB.size : at + BLOB.size + length])
        return content if crc32(content) == checksum else None


def clear_unborn(folder: Path) -> None:
    """Remove what processes left that were killed while they made their ring."""
    for path in folder.glob(f"{UNBORN}*"):
        with suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # One that has just been made may not have its lock yet.
                if time.time() - os.fstat(fd).st_mtime > _NEWBORN:
                    path.unlink()
            finally:
                os.close(fd)
