"""What a sink is: records by charge key, how far a ledger was shipped, and the heads that it has sealed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Protocol

import msgspec
from tailrace.proxy.ledger.chain import Head
from tailrace.proxy.ledger.entry import COMMON, VARYING, Entry, storable
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.verify import Seal


class Down(Exception):  # noqa: N818 - a fact about the sink
    """The sink cannot be reached or does not answer; it may have done what it was asked."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a ledger was shipped: to this place of a segment."""

    segment: int
    offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What the calls of a group come to: nano-units, tokens, how many there were."""

    amount: int
    tokens: int
    calls: int


class Sink(Protocol):
    """A store of records; every method raises Down. Used from one thread."""

    def position(self, ledger: str) -> Position:
        """How far a ledger was shipped; the beginning where it never was."""

    def store(self, ledger: str, records: Sequence[Record], position: Position | None, head: Head | None) -> None:
        """Take records and, where given, the position behind them and the head there to seal: all or nothing.

        Records whose charge key it has stay as they are.
        """

    def take(self, ledger: str, entries: Sequence[Entry], position: Position, head: Head) -> None:
        """The same for what was still in memory."""

    def seals(self, ledger: str) -> dict[int, Seal]:
        """The sealed heads of a ledger's segments."""

    def drop(self, ledger: str, segment: int) -> None:
        """Note that a segment is deleted on purpose."""

    def records(self, first_ns: int, end_ns: int) -> Iterator[Record]:
        """The records that were settled within a time, in no order; the sink may be asked nothing else meanwhile."""

    def spent(self, of: str, first_ns: int, end_ns: int) -> dict[str, dict[str, Spent]]:
        """What each key, tenant, model or tag (`of`) has used in calls that began within a time, by name and ledger."""

    def close(self) -> None:
        """Let go of it."""


COLUMNS: tuple[tuple[str, str], ...] = (
    ("charge_key", "text"),
    ("ledger", "text"),
    ("opened_ns", "bigint"),
    ("settled_ns", "bigint"),
    ("call", "text"),
    ("tenant", "text"),
    ("key", "text"),
    ("tags", "text"),
    ("model", "text"),
    ("deployment", "text"),
    ("echoed_model", "text"),
    ("class", "text"),
    ("route", "text"),
    ("status", "bigint"),
    ("ending", "text"),
    ("prompt", "bigint"),
    ("cached", "bigint"),
    ("completion", "bigint"),
    ("requests", "bigint"),
    ("amount", "bigint"),
    ("currency", "text"),
    ("price_version", "text"),
    ("estimated", "boolean"),
    ("unpriced", "boolean"),
    ("lost_prompt", "bigint"),
    ("lost_completion", "bigint"),
    ("lost_amount", "bigint"),
    ("delivered", "bigint"),
    ("worker", "text"),
    ("v", "bigint"),
)
"""Of the table of records, as both stores have it."""

NAMES = ", ".join(name for name, _ in COLUMNS)
RECORDS = "tailrace_ledger"
SEALS = "tailrace_ledger_seals"
POSITIONS = "tailrace_ledger_positions"

TABLES = (
    f"create table if not exists {RECORDS} ("
    + ", ".join(f"{name} {kind} not null" for name, kind in COLUMNS)
    + ", primary key (charge_key))",
    f"create table if not exists {SEALS} (ledger text not null, segment bigint not null, records bigint not null, "
    "hash text not null, dropped boolean not null default false, primary key (ledger, segment))",
    f"create table if not exists {POSITIONS} (ledger text not null primary key, segment bigint not null, "
    "place bigint not null, records bigint not null)",
    f"create index if not exists {RECORDS}_settled on {RECORDS} (settled_ns)",
)


_OF: Final = ("key", "tenant", "model", "tag")


def spent_query(of: str, place: str) -> str:
    """The question behind `spent`; `place` is a store's placeholder."""
    if of not in _OF:
        raise ValueError(f"nothing is added up by '{of}'")
    column = "tags" if of == "tag" else of
    return (
        f"select {column}, ledger, sum(amount), sum(prompt + completion), count(*) "  # noqa: S608
        f"from {RECORDS} where settled_ns >= {place} and opened_ns >= {place} and opened_ns < {place} "
        f"group by {column}, ledger"
    )


def spent_by_name(of: str, found: Iterable[Sequence[Any]]) -> dict[str, dict[str, Spent]]:
    """The answer to it."""
    spent: dict[str, dict[str, Spent]] = {}
    for name, ledger, amount, tokens, calls in found:
        for each in msgspec.json.decode(name) if of == "tag" else (name,):
            ledgers = spent.setdefault(each, {})
            before = ledgers.get(ledger, Spent(0, 0, 0))
            ledgers[ledger] = Spent(before.amount + int(amount), before.tokens + int(tokens), before.calls + calls)
    return spent


INSERTED: Final = VARYING + COMMON
"""The columns in the order in which rows have them."""


def rows(records: Iterable[Record], ledger: str) -> list[tuple[Any, ...]]:
    """Records as rows of INSERTED; what is true or false is 1 or 0."""
    return [_row(record, ledger) for record in records]


def rows_of(entries: Iterable[Entry], ledger: str) -> list[tuple[Any, ...]]:
    """The same of entries."""
    named = (ledger,)
    return [entry.varying() + named + entry.words.columns for entry in entries]


def record_from(row: Sequence[Any]) -> Record:
    """The record of a row."""
    plain = dict(zip((name for name, _ in COLUMNS), row, strict=True))
    del plain["ledger"]
    plain["tags"] = msgspec.json.decode(plain["tags"])
    return msgspec.convert(plain, Record, strict=False)


_ATTRIBUTES = {"class": "service_class", "v": "version"}
_of = attrgetter(*(_ATTRIBUTES.get(name, name) for name in INSERTED if name not in ("ledger", "tags")))
_LEDGER, _TAGS = INSERTED.index("ledger"), INSERTED.index("tags")


def _row(record: Record, ledger: str) -> tuple[Any, ...]:
    values = list(_of(record))
    values.insert(_LEDGER, ledger)
    values.insert(_TAGS, msgspec.json.encode(record.tags).decode())
    return tuple([storable(value) if type(value) is str else int(value) for value in values])
