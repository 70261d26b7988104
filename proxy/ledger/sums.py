"""Reading the ledger: the records of a log or a sink, each once, and their exact sums by what one asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from pathlib import Path

import msgspec
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.shipping import salvaged
from tailrace.proxy.ledger.totals import Sum

_record = msgspec.json.Decoder(Record).decode
_NANO = 10**9

WAYS = ("tenant", "key", "tag", "model", "deployment", "class", "route", "day", "month", "ending", "worker")
"""By what sums can be asked; a record with several tags counts under each of them."""


def in_log(folder: Path, first_ns: int, end_ns: int) -> Iterator[Record]:
    """The records of a log that were settled within a time, each charge key once."""
    seen: set[str] = set()
    for segment in segments.numbers(folder):
        path = segments.path_of(folder, segment)
        for lines in salvaged(path, path.stat().st_size):
            for line in lines:
                with suppress(msgspec.DecodeError):
                    record = _record(line.text)
                    if first_ns <= record.settled_ns < end_ns and record.charge_key not in seen:
                        seen.add(record.charge_key)
                        yield record


def summed(records: Iterable[Record], by: Sequence[str], zone: tzinfo) -> dict[tuple[str, ...], Sum]:
    """Sums by the ways asked for, and by currency, which stands last: amounts of two are never added."""
    sums: dict[tuple[str, ...], Sum] = {}
    for record in records:
        for names in _names(record, by, zone):
            group = sums.get(names)
            if group is None:
                group = sums[names] = Sum()
            group.add(record)
    return dict(sorted(sums.items()))


def _names(record: Record, by: Sequence[str], zone: tzinfo) -> Iterator[tuple[str, ...]]:
    tags = record.tags or ("",) if "tag" in by else ("",)
    for tag in dict.fromkeys(tags):
        yield (*(_name(record, way, tag, zone) for way in by), record.currency)


def _name(record: Record, way: str, tag: str, zone: tzinfo) -> str:
    if way == "tag":
        return tag
    if way in ("day", "month"):
        day = datetime.fromtimestamp(record.settled_ns // _NANO, zone).date().isoformat()
        return day if way == "day" else day[:7]
    found: str = getattr(record, "service_class" if way == "class" else way)
    return found
