"""The log as it is written: batches at the end of the last segment, each durable before the next begins.

A write that fails leaves nothing: what it did write is cut off before the next. A failed fdatasync may have dropped
pages that the system takes for clean since, so what it was to cover is written again, never only synced again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import msgspec
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.chain import GENESIS, Head, Header, begin, chained
from tailrace.proxy.ledger.disk import Disk

log = logging.getLogger("tailrace")

SEGMENT_BYTES = 64 << 20
SEGMENT_SECONDS = 86_400.0
_NANO = 10**9


class Log:
    """The writing side; one at a time, which the lock on the state folder sees to."""

    _header: Header
    _ledger: str
    _end: int
    _records: int
    _hash: str
    _batch: int
    _durable: tuple[int, int]

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_seconds: float = SEGMENT_SECONDS,
        disk: Disk | None = None,
    ) -> None:
        """Take up what is there; a torn end is cut off, and `torn` says how many bytes that were."""
        self.folder = folder
        self.torn = 0
        self.damaged = ""
        self._segment_bytes = segment_bytes
        self._segment_ns = int(segment_seconds * _NANO)
        self._disk = disk or Disk()
        self._fd = -1
        self._dirty = False
        self._over = False
        self._disk.make_folder(folder)
        present = segments.numbers(folder)
        if present:
            self._take_up(present[-1])
        else:
            self._begin(Header(ledger=token_hex(8), segment=1, previous=GENESIS, records=0, opened_ns=time.time_ns()))

    @property
    def head(self) -> Head:
        """How far it is durable."""
        return Head(self._header.ledger, self._header.segment, self._records, self._hash)

    @property
    def durable(self) -> tuple[int, int]:
        """The segment being written, and how many bytes of it are durable."""
        return self._durable

    def start_over(self) -> None:
        """Have the next batch begin a new segment: a sink has seen more of this one than is there."""
        self._over = True

    def append(self, texts: Sequence[bytes]) -> int:
        """Make records durable, all of them, and say where they begin; an OSError says that none is in the log."""
        if not texts:
            return self._end
        self.close_if_due()
        if self._dirty:
            self._disk.truncate(self._fd, self._end)
        begins = self._end
        mark, content = chained(self._hash, self._records, self._batch + 1, texts)
        self._dirty = True
        try:
            self._disk.write(self._fd, content, begins)
            self._disk.sync(self._fd)
        except OSError:
            with suppress(OSError):
                self._disk.truncate(self._fd, begins)
            raise
        self._dirty = False
        self._records, self._hash = self._records + len(texts), mark
        self._batch += 1
        self._end = begins + len(content)
        # Read by other threads, and so in one piece.
        self._durable = self._header.segment, self._end
        return begins

    def close_if_due(self) -> None:
        """Begin another segment where this one is large or old enough."""
        old = time.time_ns() - self._header.opened_ns >= self._segment_ns
        if self._over or (self._records and (self._end >= self._segment_bytes or old)):
            if self._dirty:
                self._disk.truncate(self._fd, self._end)
                self._dirty = False
            self._follow(self._header.segment, self._hash, self._records)
            self._over = False

    def recent(self, count: int) -> set[str]:
        """The charge keys of the last records, `count` or more where there are so many."""
        keys: set[str] = set()
        for segment in reversed(segments.numbers(self.folder)):
            lines, _ = segments.lines_from(segments.path_of(self.folder, segment), 0, -1)
            for line in lines[-count:]:
                with suppress(msgspec.DecodeError):
                    keys.add(_keyed(line.text).charge_key)
            count -= len(lines)
            if count <= 0:
                break
        return keys

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take_up(self, segment: int) -> None:
        path = segments.path_of(self.folder, segment)
        found = segments.reach(path.read_bytes())
        if found.header is None or not (found.whole or found.torn):
            self.damaged = f"segment {segment} is damaged behind record {found.records}: run `tailrace ledger verify`"
            log.error("the ledger's %s; it goes on in a new segment", self.damaged)
            self._ledger = segments.name_of(self.folder) or token_hex(8)
            self._follow(segment, found.last_hash, found.last_number)
            return
        self._fd = self._disk.open(path)
        if not found.whole:
            self.torn = found.size - found.end
            log.warning(
                "cut off %d bytes behind record %d of the ledger's segment %d: a torn end, as a power cut leaves it",
                self.torn,
                found.records,
                segment,
            )
            self._disk.truncate(self._fd, found.end)
            self._disk.sync(self._fd)
        self._stand(found.header, found.end, found.records, found.hash, found.batch)

    def _follow(self, segment: int, mark: str, records: int) -> None:
        self._begin(
            Header(ledger=self._ledger, segment=segment + 1, previous=mark, records=records, opened_ns=time.time_ns())
        )

    def _begin(self, header: Header) -> None:
        line = msgspec.json.encode(header)
        path = segments.path_of(self.folder, header.segment)
        self._disk.create(path, line + b"\n")
        fd = self._disk.open(path)
        self.close()
        self._fd = fd
        self._stand(header, len(line) + 1, 0, begin(line), 0)

    def _stand(self, header: Header, end: int, records: int, mark: str, batch: int) -> None:
        self._header = header
        self._ledger = header.ledger
        self._end, self._records, self._hash, self._batch = end, records, mark, batch
        self._durable = header.segment, end


class _Keyed(msgspec.Struct):
    charge_key: str


_keyed = msgspec.json.Decoder(_Keyed).decode
