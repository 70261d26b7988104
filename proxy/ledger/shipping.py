"""Ships to the sink what is durable, in batches, on a thread of its own: a sink that is down holds up nothing else.

What was written lately is still in memory; the rest is read from the log.

How far it came stands in the sink, in the transaction that took the records. So a lost acknowledgement, a killed
thread or a sink put back to an older state repeats records at most, and a charge key that is there is not taken twice.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.chain import Head, Line, header_of, line_of
from tailrace.proxy.ledger.lately import Lately
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.sinks.sink import Down, Position, Sink

log = logging.getLogger("tailrace")

PERIOD = 0.5
KEEP_SECONDS = 30 * 86_400.0
BATCH_BYTES = 128 << 10
"""Some hundred records: what is done with them in one piece holds up the keeper, which shares the interpreter."""

_AT_ONCE = 500
"""Records out of memory, for the same reason."""
_BATCH = 300
_LONGEST_WAIT = 10.0
_PARTING = 3.0
_NANO = 10**9

_record = msgspec.json.Decoder(Record).decode


class Shipper:
    """What may be read from any thread: `trouble`, `behind_seconds`, `shipped`."""

    def __init__(
        self,
        ledger: Log,
        sink: Sink,
        *,
        lately: Lately | None = None,
        keep_seconds: float = KEEP_SECONDS,
        period: float = PERIOD,
    ) -> None:
        """What `lately` does not hold is read from the log."""
        self.trouble = ""
        """Why nothing can be shipped now; empty while all is well."""
        self.shipped = 0
        self._log = ledger
        self._ledger = ledger.head.ledger
        self._folder = ledger.folder
        self._sink = sink
        self._lately = lately
        self._keep_ns = int(keep_seconds * _NANO)
        self._period = period
        self._at: Position | None = None
        self._caught_up = time.monotonic()
        self._complete = (0, 0)
        self._failures = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def behind_seconds(self) -> float:
        """For how long the sink has not had everything that is durable."""
        return 0.0 if self._complete == self._log.durable else time.monotonic() - self._caught_up

    def start(self) -> None:
        """Begin to ship."""
        self._thread = threading.Thread(target=self._run, name="tailrace-ledger-sink", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ship what can be shipped within a moment, and end; the rest is shipped by the next."""
        self._stop.set()
        if self._thread is None:
            self._part()
        else:
            self._thread.join(2 * _PARTING)
            if self._thread.is_alive():
                log.warning("the ledger's sink does not answer, and is left as it is")
                return
        self._sink.close()

    def _run(self) -> None:
        while not self._stop.wait(self._pause()):
            self._try()
        # Here, as a sink that stands still now would hold up whoever closes.
        self._part()

    def _part(self) -> None:
        if not self.trouble:
            self._try(time.monotonic() + _PARTING)

    def _pause(self) -> float:
        if not self._failures:
            return self._period
        # Many gateways must not come back to a database in step.
        return min(_LONGEST_WAIT, self._period * float(1 << min(self._failures, 10))) * random.uniform(0.5, 1)

    def _try(self, until: float = math.inf) -> None:
        try:
            self.ship(until)
            self._clear_away()
        except (Down, OSError) as error:
            self._fail(str(error))
        except Exception as error:
            log.exception("shipping of the ledger failed, and is tried again")
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, why: str) -> None:
        self._at = None
        self._failures += 1
        if not self.trouble:
            log.warning("the ledger's sink takes nothing: %s; records wait in the log", why)
        self.trouble = f"the ledger's sink takes nothing: {why}"

    def ship(self, until: float = math.inf) -> None:
        """Give the sink everything that is durable, or what it takes until a time; raises Down or OSError."""
        durable = self._log.durable
        while self._ship_some():
            if time.monotonic() > until or (self._stop.is_set() and until == math.inf):
                return
            durable = self._log.durable
        self._complete = durable
        self._caught_up = time.monotonic()
        self._failures = 0
        if self.trouble:
            log.warning("the ledger's sink takes records again")
            self.trouble = ""

    def _ship_some(self) -> bool:
        """One batch; whether there may be more."""
        at = self._at or self._sink.position(self._ledger)
        self._at = at
        return self._ship_held(at) or self._ship_read(at)

    def _ship_held(self, at: Position) -> bool:
        """One batch of what is still in memory."""
        if self._lately is None:
            return False
        last, entries = self._lately.behind(at.segment, at.offset, _AT_ONCE)
        if last is None:
            return False
        position = Position(at.segment, last.ends, last.head.records)
        self._sink.take(self._ledger, entries, position, last.head)
        self._at = position
        self.shipped += len(entries)
        return True

    def _ship_read(self, at: Position) -> bool:
        """One batch of what the log has."""
        segment, end = self._log.durable
        path = segments.path_of(self._folder, at.segment)
        limit = end if at.segment == segment else path.stat().st_size if path.exists() else 0
        room = min(BATCH_BYTES, limit - at.offset)
        lines, offset = segments.lines_from(path, at.offset, room) if room > 0 else ([], at.offset)
        if lines:
            last = lines[-1]
            position = Position(at.segment, offset, last.number)
            head = Head(self._ledger, at.segment, last.number, last.hash)
            self._sink.store(self._ledger, _records(lines), position, head)
            self._at = position
            self.shipped += len(lines)
            return True
        if path.exists() and offset != limit:
            self._salvage(at.segment, limit)
            return True
        return self._step(at.segment, segment)

    def _step(self, shipped: int, written: int) -> bool:
        """Go on to the segment behind one that was shipped, if there is one."""
        following = [number for number in segments.numbers(self._folder) if shipped < number <= written]
        if following:
            if not segments.path_of(self._folder, shipped).exists():
                log.error("the ledger's segment %d is not there to be shipped", shipped)
            self._at = Position(following[0], 0, 0)
        return bool(following)

    def _salvage(self, segment: int, limit: int) -> None:
        """Ship what can be read of a segment that is not what it was when the sink saw it last.

        Its seal stays as it is, for `verify` to tell; nothing more is written to it.
        """
        log.error("the ledger's segment %d was changed or cut: run `tailrace ledger verify`", segment)
        if segment == self._log.durable[0]:
            self._log.start_over()
        for lines in salvaged(segments.path_of(self._folder, segment), limit):
            self._sink.store(self._ledger, _records(lines), None, None)
        self._at = Position(segment, limit, 0)
        self._sink.store(self._ledger, (), self._at, None)

    def _clear_away(self) -> None:
        """Delete segments that were shipped and are old enough."""
        at = self._at
        if at is None:
            return
        now = time.time_ns()
        present = segments.numbers(self._folder)
        for segment, following in pairwise(present):
            if segment >= at.segment or _opened_ns(segments.path_of(self._folder, following)) > now - self._keep_ns:
                return
            self._sink.drop(self._ledger, segment)
            segments.path_of(self._folder, segment).unlink()


def replay(folder: Path, sink: Sink) -> tuple[int, int]:
    """Give a sink all records of a log once more, seals and position left alone: how many segments and records."""
    records = 0
    present = segments.numbers(folder)
    ledger = segments.name_of(folder)
    for segment in present:
        path = segments.path_of(folder, segment)
        for lines in salvaged(path, path.stat().st_size):
            found = _records(lines)
            sink.store(ledger, found, None, None)
            records += len(found)
    return len(present), records


def salvaged(path: Path, limit: int) -> Iterator[list[Line]]:
    """All lines of a segment that can be read, in batches."""
    with path.open("rb") as file:
        content = file.read(limit)
    batch: list[Line] = []
    for text in content.split(b"\n")[1:]:
        line = line_of(text)
        if line is not None:
            batch.append(line)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _records(lines: list[Line]) -> list[Record]:
    """The records of lines; one that cannot be read is left out, as the others must not wait behind it."""
    found = []
    for line in lines:
        try:
            found.append(_record(line.text))
        except msgspec.DecodeError:
            log.error("record %d of a segment of the ledger cannot be read", line.number)
    return found


def _opened_ns(path: Path) -> int:
    """When a segment was begun, and so when the one before it ended."""
    with path.open("rb") as file:
        header = header_of(file.readline().rstrip(b"\n"))
    return time.time_ns() if header is None else header.opened_ns
