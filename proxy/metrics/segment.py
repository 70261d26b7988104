"""The memory in which one process counts and another reads: its layout, version 1.

    0        8 bytes   "tailrace"
    8        uint64    version of the layout
    16       uint64    epoch: odd while the table is being rewritten; a reader that saw it change reads again
    24       uint64    end of the table, counted from its beginning
    64       table     records that are only appended, except in a rewrite: uint32 length, uint32 CRC-32, JSON
                       ["family", name, kind, help, labels, bounds, merge, limit]: the next family, counted from 0
                       ["series", family, first slot, label values]
    2 MiB    slots     float64, in the machine's byte order

There is one writer. It writes a record before it moves the end over it, and a reader stops at a record whose checksum
is wrong, so half a record is never believed. A slot is eight aligned bytes, which processors store whole. A reader may
see one slot of a histogram written and the next not yet; as the count is the sum of the buckets, they always agree.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from typing import Any

import orjson
from tailrace.proxy.metrics.family import Family, Kind, Merge

VERSION = 1
TABLE_AT = 64
SLOTS_AT = 2 << 20
SLOTS = 1 << 16
TABLE_BYTES = SLOTS_AT - TABLE_AT
SIZE = SLOTS_AT + SLOTS * 8

_MAGIC = b"tailrace"
_EPOCH, _END = 2, 3
_RECORD = struct.Struct("=II")
_PATIENCE = 20

Values = tuple[str, ...]
Reading = dict[str, tuple[Family, dict[Values, list[float]]]]
"""Families by name, each with its series: label values to slots."""


class Segment:
    """A mapping of the memory; `slots[i] += 1` is how its owner counts."""

    __slots__ = ("_map", "_view", "_words", "fd", "slots")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, SIZE)
        self._view = memoryview(self._map)
        self._words = self._view[:TABLE_AT].cast("Q")
        self.slots: memoryview[float] = self._view[SLOTS_AT:].cast("d")

    @classmethod
    def create(cls) -> Segment:
        """Fresh memory without a name; it lives as long as somebody has it open."""
        fd = _memory_file()
        os.ftruncate(fd, SIZE)
        segment = cls(fd)
        segment._view[:8] = _MAGIC
        segment._words[1] = VERSION
        return segment

    @classmethod
    def attach(cls, fd: int) -> Segment:
        """Map an inherited descriptor, which then belongs to the segment; raises ValueError where it is none."""
        if os.fstat(fd).st_size != SIZE:
            raise ValueError(f"file descriptor {fd} is no metrics segment: its size is not {SIZE}")
        segment = cls(fd)
        if segment._view[:8] != _MAGIC or segment._words[1] != VERSION:
            segment._unmap()
            raise ValueError(f"file descriptor {fd} is no metrics segment of version {VERSION}")
        return segment

    def close(self) -> None:
        """Unmap and close; counting and reading afterwards raise ValueError."""
        self._unmap()
        self.close_descriptor()

    def close_descriptor(self) -> None:
        """Close the file only: what is mapped can still be counted in, until the segment is forgotten."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _unmap(self) -> None:
        self.slots.release()
        self._words.release()
        self._view.release()
        self._map.close()

    @property
    def table_used(self) -> int:
        """Bytes of the table that hold records."""
        return self._words[_END]

    def append(self, record: bytes) -> None:
        """Publish a record; its slots must hold what a reader may see."""
        end = self._words[_END]
        start = TABLE_AT + end
        framed = _RECORD.pack(len(record), zlib.crc32(record)) + record
        self._view[start : start + len(framed)] = framed
        self._words[_END] = end + len(framed)

    def begin_rewrite(self) -> None:
        """Empty the table; readers wait until `end_rewrite`."""
        self._words[_EPOCH] += 1
        self._words[_END] = 0

    def end_rewrite(self) -> None:
        """Let readers in again."""
        self._words[_EPOCH] += 1

    def read(self) -> Reading:
        """Everything in the segment; its writer may go on meanwhile, or have died."""
        for _ in range(_PATIENCE):
            epoch = self._words[_EPOCH]
            if not epoch % 2:
                reading = self._read()
                if self._words[_EPOCH] == epoch:
                    return reading
            time.sleep(0.001)
        return self._read()

    def _read(self) -> Reading:
        reading: Reading = {}
        families: list[Family] = []
        for record in self._records():
            if record[0] == "family":
                family = _family(record)
                families.append(family)
                reading[family.name] = (family, {})
            else:
                _, number, first, values = record
                family = families[number]
                reading[family.name][1][tuple(values)] = list(self.slots[first : first + family.width])
        return reading

    def _records(self) -> Iterator[list[Any]]:
        at, end = TABLE_AT, TABLE_AT + min(self._words[_END], TABLE_BYTES)
        while at + _RECORD.size <= end:
            length, checksum = _RECORD.unpack_from(self._view, at)
            at += _RECORD.size
            record = bytes(self._view[at : at + length])
            if at + length > end or zlib.crc32(record) != checksum:
                return
            yield orjson.loads(record)
            at += length


def framed_size(record: bytes) -> int:
    """How many bytes of the table a record takes."""
    return _RECORD.size + len(record)


def family_record(family: Family) -> bytes:
    """The record that defines a family."""
    return orjson.dumps(
        ["family", family.name, family.kind, family.help, family.labels, family.bounds, family.merge, family.limit]
    )


def series_record(number: int, first: int, values: Values) -> bytes:
    """The record that names a series of the family with this number."""
    return orjson.dumps(["series", number, first, values])


def _family(record: list[Any]) -> Family:
    _, name, kind, what, labels, bounds, merge, limit = record
    return Family(name, Kind(kind), what, tuple(labels), tuple(bounds), Merge(merge), limit)


def _memory_file() -> int:
    try:
        return os.memfd_create("tailrace-metrics")
    except (AttributeError, OSError):  # no such call on this system, or forbidden by a sandbox
        fd, path = tempfile.mkstemp(prefix="tailrace-metrics-")
        os.unlink(path)  # noqa: PTH108 - only the descriptor is wanted
        return fd
