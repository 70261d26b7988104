"""Records in PostgreSQL: for several hosts, and for seals that are not in the hands of those who can write the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tailrace.proxy.config.secret import without_userinfo
from tailrace.proxy.ledger.chain import Head
from tailrace.proxy.ledger.entry import Entry
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.sinks.sink import (
    COLUMNS,
    INSERTED,
    NAMES,
    POSITIONS,
    RECORDS,
    SEALS,
    TABLES,
    Down,
    Position,
    Spent,
    record_from,
    rows,
    rows_of,
    spent_by_name,
    spent_query,
)
from tailrace.proxy.ledger.verify import Seal

if TYPE_CHECKING:
    import psycopg

_ARRAYS = {"text": "text[]", "bigint": "bigint[]", "boolean": "boolean[]"}
_KINDS = dict(COLUMNS)
# One statement for a batch: a statement a row costs a hundred times the parsing.
_INSERT = (
    f"insert into {RECORDS} ({', '.join(INSERTED)}) select * from unnest("  # noqa: S608
    + ", ".join(f"%s::{_ARRAYS[_KINDS[name]]}" for name in INSERTED)
    + ") on conflict (charge_key) do nothing"
)
_SEAL = (
    f"insert into {SEALS} (ledger, segment, records, hash) values (%s, %s, %s, %s) "  # noqa: S608
    "on conflict (ledger, segment) do update set records = excluded.records, hash = excluded.hash "
    f"where excluded.records >= {SEALS}.records"
)
_MOVE = (
    f"insert into {POSITIONS} (ledger, segment, place, records) values (%s, %s, %s, %s) "  # noqa: S608
    "on conflict (ledger) do update set segment = excluded.segment, place = excluded.place, records = excluded.records"
)
_READ = f"select {NAMES} from {RECORDS} where settled_ns >= %s and settled_ns < %s"  # noqa: S608
_DROP = f"update {SEALS} set dropped = true where ledger = %s and segment = %s"  # noqa: S608
_LIMITS: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": "tailrace-ledger",
    "options": "-c statement_timeout=20000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=30000",
}
"""A server that stands still must not hold the thread for ever."""


class PostgresSink:
    """A sink behind a connection, which is made when it is first needed, and again after a failure."""

    def __init__(self, url: str) -> None:
        """Raises Down where its driver is not installed."""
        try:
            import psycopg
        except ImportError as error:
            raise Down("PostgreSQL needs the extra `postgres`: pip install 'tailrace[postgres]'") from error
        self._psycopg = psycopg
        self._url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def position(self, ledger: str) -> Position:
        """How far a ledger was shipped."""
        with self._asking() as connection:
            query = f"select segment, place, records from {POSITIONS} where ledger = %s"  # noqa: S608
            row = connection.execute(query, (ledger,)).fetchone()
        return Position(*row) if row else Position(1, 0, 0)

    def store(self, ledger: str, records: Sequence[Record], position: Position | None, head: Head | None) -> None:
        """Take records, the position and the head."""
        self._store(ledger, rows(records, ledger), position, head)

    def take(self, ledger: str, entries: Sequence[Entry], position: Position, head: Head) -> None:
        """Take entries, the position and the head."""
        self._store(ledger, rows_of(entries, ledger), position, head)

    def _store(
        self, ledger: str, found: Sequence[tuple[Any, ...]], position: Position | None, head: Head | None
    ) -> None:
        columns = [
            list(map(bool, column)) if _KINDS[name] == "boolean" else list(column)
            for name, column in zip(INSERTED, zip(*found, strict=True), strict=bool(found))
        ]
        with self._asking() as connection, connection.transaction():
            if columns:
                connection.execute(_INSERT, columns)
            if head is not None:
                connection.execute(_SEAL, (ledger, head.segment, head.records, head.hash))
            if position is not None:
                connection.execute(_MOVE, (ledger, position.segment, position.offset, position.records))

    def seals(self, ledger: str) -> dict[int, Seal]:
        """The sealed heads."""
        with self._asking() as connection:
            query = f"select segment, records, hash, dropped from {SEALS} where ledger = %s"  # noqa: S608
            found = connection.execute(query, (ledger,)).fetchall()
        return {segment: Seal(records, mark, dropped) for segment, records, mark, dropped in found}

    def drop(self, ledger: str, segment: int) -> None:
        """Note that a segment is deleted."""
        with self._asking() as connection:
            connection.execute(_DROP, (ledger, segment))

    def records(self, first_ns: int, end_ns: int) -> Iterator[Record]:
        """The records of a time."""
        with self._asking() as connection, connection.transaction(), connection.cursor("tailrace_records") as cursor:
            cursor.execute(_READ, (first_ns, end_ns))
            yield from map(record_from, cursor)

    def spent(self, of: str, first_ns: int, end_ns: int) -> dict[str, dict[str, Spent]]:
        """What everybody has used, by name and ledger."""
        with self._asking() as connection:
            found = connection.execute(spent_query(of, "%s"), (first_ns, first_ns, end_ns)).fetchall()
        return spent_by_name(of, found)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(self._psycopg.Error):
                self._connection.close()
            self._connection = None

    @contextmanager
    def _asking(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        try:
            if self._connection is None:
                self._connection = self._opened()
            yield self._connection
        except (self._psycopg.Error, OSError) as error:
            self.close()
            raise Down(_told(error)) from None

    def _opened(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = self._psycopg.connect(self._url, autocommit=True, **_LIMITS)
        try:
            for table in TABLES:
                connection.execute(table)
        except BaseException:
            connection.close()
            raise
        return connection


def _told(error: Exception) -> str:
    """The first line of what went wrong; that of a bad URL may hold the password."""
    return f"PostgreSQL: {without_userinfo(str(error).strip().partition(chr(10))[0])}"
