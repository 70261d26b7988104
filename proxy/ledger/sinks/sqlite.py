"""Records in an SQLite file beside the log: the default, for one host."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tailrace.proxy.ledger.chain import Head
from tailrace.proxy.ledger.entry import COMMON, VARYING, Entry, Words
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.sinks.sink import (
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

NAME = "ledger.db"
_BUSY = 5.0
_INSERT = f"insert into {RECORDS} ({', '.join(INSERTED)}) values (%s) on conflict do nothing"  # noqa: S608
_ANY = _INSERT % ", ".join("?" * len(INSERTED))
_QUOTED = f"select {', '.join(['quote(?)'] * len(COMMON))}"
_WORTH = 8
"""So many rows with the same words are worth a statement of their own, with these in it: half the columns to bind."""
_REMEMBERED = 96
"""Statements; a connection keeps 128 prepared."""
_SEAL = (
    f"insert into {SEALS} (ledger, segment, records, hash) values (?, ?, ?, ?) "  # noqa: S608
    "on conflict (ledger, segment) do update set records = excluded.records, hash = excluded.hash "
    f"where excluded.records >= {SEALS}.records"
)
_MOVE = (
    f"insert into {POSITIONS} values (?, ?, ?, ?) on conflict (ledger) do update "  # noqa: S608
    "set segment = excluded.segment, place = excluded.place, records = excluded.records"
)
_READ = f"select {NAMES} from {RECORDS} where settled_ns >= ? and settled_ns < ?"  # noqa: S608
_DROP = f"update {SEALS} set dropped = true where ledger = ? and segment = ?"  # noqa: S608


class SqliteSink:
    """A sink in a file; it is opened when it is first needed, and again after a failure."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._connection: sqlite3.Connection | None = None
        self._statements: dict[Words, str] = {}

    def position(self, ledger: str) -> Position:
        """How far a ledger was shipped."""
        with self._asking() as connection:
            query = f"select segment, place, records from {POSITIONS} where ledger = ?"  # noqa: S608
            row = connection.execute(query, (ledger,)).fetchone()
        return Position(*row) if row else Position(1, 0, 0)

    def store(self, ledger: str, records: Sequence[Record], position: Position | None, head: Head | None) -> None:
        """Take records, the position and the head."""
        with self._asking() as connection:
            connection.execute("begin immediate")
            connection.executemany(_ANY, rows(records, ledger))
            self._note(connection, ledger, position, head)
            connection.execute("commit")

    def take(self, ledger: str, entries: Sequence[Entry], position: Position, head: Head) -> None:
        """Take entries, the position and the head."""
        alike: dict[Words, list[Entry]] = defaultdict(list)
        for entry in entries:
            alike[entry.words].append(entry)
        with self._asking() as connection:
            connection.execute("begin immediate")
            for words, group in alike.items():
                if len(group) < _WORTH:
                    connection.executemany(_ANY, rows_of(group, ledger))
                else:
                    statement = self._statement(connection, words, ledger)
                    connection.executemany(statement, [entry.varying() for entry in group])
            self._note(connection, ledger, position, head)
            connection.execute("commit")

    def _statement(self, connection: sqlite3.Connection, words: Words, ledger: str) -> str:
        """The insertion of entries with the same words."""
        statement = self._statements.get(words)
        if statement is None:
            if len(self._statements) >= _REMEMBERED:
                self._statements.clear()
            # Clients choose some of these words: SQLite itself writes them as literals.
            quoted = connection.execute(_QUOTED, (ledger, *words.columns)).fetchone()
            statement = _INSERT % ", ".join([*"?" * len(VARYING), *map(str, quoted)])
            self._statements[words] = statement
        return statement

    def _note(self, connection: sqlite3.Connection, ledger: str, position: Position | None, head: Head | None) -> None:
        if head is not None:
            connection.execute(_SEAL, (ledger, head.segment, head.records, head.hash))
        if position is not None:
            connection.execute(_MOVE, (ledger, position.segment, position.offset, position.records))

    def seals(self, ledger: str) -> dict[int, Seal]:
        """The sealed heads."""
        with self._asking() as connection:
            query = f"select segment, records, hash, dropped from {SEALS} where ledger = ?"  # noqa: S608
            found = connection.execute(query, (ledger,)).fetchall()
        return {segment: Seal(records, mark, bool(dropped)) for segment, records, mark, dropped in found}

    def drop(self, ledger: str, segment: int) -> None:
        """Note that a segment is deleted."""
        with self._asking() as connection:
            # On disk before the segment goes: else a power cut between the two makes it one that was removed.
            connection.execute("pragma synchronous = full")
            connection.execute(_DROP, (ledger, segment))
            connection.execute("pragma synchronous = normal")

    def records(self, first_ns: int, end_ns: int) -> Iterator[Record]:
        """The records of a time."""
        with self._asking() as connection:
            yield from map(record_from, connection.execute(_READ, (first_ns, end_ns)))

    def spent(self, of: str, first_ns: int, end_ns: int) -> dict[str, dict[str, Spent]]:
        """What everybody has used, by name and ledger."""
        with self._asking() as connection:
            found = connection.execute(spent_query(of, "?"), (first_ns, first_ns, end_ns)).fetchall()
        return spent_by_name(of, found)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _asking(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._connection is None:
                self._connection = self._opened()
            yield self._connection
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise Down(f"{self._path}: {error}") from error

    def _opened(self) -> sqlite3.Connection:
        mode = "ro" if self._read_only else "rwc"
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY,
            isolation_level=None,
            check_same_thread=False,
        )
        if not self._read_only:
            connection.execute("pragma journal_mode = wal")
            # A power cut may take the last transactions, position and all: the log has their records, and they are
            # shipped again.
            connection.execute("pragma synchronous = normal")
            for table in TABLES:
                connection.execute(table)
        return connection
