"""What tests of the ledger share: calls to set down, logs in a folder, a disk that fails, a record as it should be."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.disk import Disk
from tailrace.proxy.ledger.entry import Entry
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.record import Late, Opening, Record
from tailrace.proxy.ledger.ring import Ring
from tailrace.proxy.ledger.settled import Settled
from tailrace.proxy.ledger.slots import Slots
from tailrace.proxy.ledger.sums import in_log

RATES = (500_000_000, 50_000_000, 1_500_000_000, 100)
EVER = 2**63 - 1
DONE = Late("completed", "llama-70b")


def opening(charge_key: str, **more: Any) -> Opening:
    """A call of some tenant."""
    words: dict[str, Any] = {
        "call": f"call-{charge_key}",
        "tenant": "acme",
        "key": "k1",
        "tags": ("a", "b"),
        "model": "llama",
        "deployment": "llama-70b",
        "service_class": "interactive",
        "route": "chat",
        "currency": "EUR",
        "price_version": "p1",
        "rates": RATES,
    }
    return Opening(charge_key, **words | more)


def settled(number: int) -> Settled:
    """A settlement whose every number tells whose it is."""
    return Settled(amount=number * 7, status=200, prompt=number, cached=number // 2, completion=number * 3, delivered=9)


def fill(ring: Ring, count: int, first: int = 1) -> list[str]:
    """Open and settle so many calls; their charge keys."""
    keys = []
    for number in range(first, first + count):
        keys.append(ring.mint())
        slot = ring.open(opening(keys[-1]))
        assert slot >= 0
        ring.settle(slot, DONE, settled(number))
    return keys


def read(folder: Path) -> list[Record]:
    """All records of a log, each once."""
    return list(in_log(folder, -EVER, EVER))


def record_of(entry: Entry | None) -> Record:
    """The record of an entry, as a reader of the log has it."""
    assert entry is not None
    record = msgspec.json.decode(entry.text(), type=Record)
    assert msgspec.json.encode(record) == entry.text()
    return record


def left_in(slots: Slots, now_ns: int = 1) -> list[Record]:
    """What a dead process has left in its ring."""
    return [record_of(entry) for _, entry in slots.left_open(now_ns)]


def raw_keys(folder: Path) -> list[str]:
    """The charge keys of all lines of a log, as often as they stand there."""
    return [record.charge_key for record in _every(folder)]


def _every(folder: Path) -> Iterator[Record]:
    for segment in segments.numbers(folder):
        lines, _ = segments.lines_from(segments.path_of(folder, segment), 0, -1)
        for line in lines:
            yield msgspec.json.decode(line.text, type=Record)


def log_in(folder: Path, **more: Any) -> Log:
    return Log(folder, **more)


class FailingDisk(Disk):
    """A disk that has no room, or fails to write out, as long as it is told to."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.broken = False
        self.stuck = False

    def write(self, fd: int, content: bytes, offset: int) -> None:
        if self.room is not None:
            super().write(fd, content[: self.room], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(fd, content, offset)

    def sync(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        if self.stuck:
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(fd, size)


class PowerCut(Disk):
    """A disk whose power may fail at any moment: it keeps what every file had when it was synced last."""

    def __init__(self) -> None:
        self.files: dict[Path, bytes] = {}
        self._open: dict[int, Path] = {}

    def open(self, path: Path) -> int:
        fd = super().open(path)
        self._open[fd] = path
        return fd

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.files[self._open[fd]] = self._open[fd].read_bytes()

    def create(self, path: Path, content: bytes) -> None:
        super().create(path, content)
        self.files[path] = content

    def after(self, folder: Path, tail: Callable[[bytes, bytes], bytes]) -> None:
        """What is found when the power is back; `tail` makes it of what was synced and what was written since."""
        for path, content in self.files.items():
            lost = path.read_bytes()[len(content) :]
            (folder / path.name).write_bytes(tail(content, lost) if lost else content)
