"""The host part's table of keys, kept in step with what the stores say."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.plugins.auth.board import Board
from tailrace.plugins.auth.record import Record, Status, packed
from tailrace.plugins.auth.table import Full, Stored, WritableTable


class Change(NamedTuple):
    """What a store says of one key now."""

    id: str
    digest: bytes
    until: float
    previous: bytes | None
    previous_until: float
    status: int
    grants: bytes

    @classmethod
    def of(cls, record: Record) -> Change:
        """A record as a change."""
        return cls(
            record.id,
            record.digest,
            record.expires,
            record.previous,
            record.previous_until,
            record.status,
            packed(record),
        )


class KeyRing:
    """Threads of several stores write to it, one at a time."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._lock = threading.Lock()
        self._number = board.table
        self.is_complete = self._shown = False
        self._table: WritableTable | None = None
        # By store and id: the digests that open something.
        self._held: dict[tuple[str, str], tuple[bytes, ...]] = {}

    @property
    def keys(self) -> int:
        """How many keys there are, revoked ones of this run included."""
        return len(self._held)

    def complete(self) -> None:
        """Every store has been read: what a supervisor before this one knew is replaced. May take its time."""
        with self._lock:
            self.is_complete = True
            self._show()

    def apply(self, store: str, changes: Iterable[Change]) -> int:
        """Take up what a store says; how many changes that were. Raises what the store raises, and OSError."""
        count = 0
        try:
            # A store that hangs in the middle of its changes must not hold up the others.
            for change in changes:
                with self._lock:
                    self._take(store, change)
                count += 1
        finally:
            with self._lock:
                self._show()
        return count

    def forget(self, store: str) -> None:
        """A store is followed no more: what only it had is revoked."""
        with self._lock:
            gone = [key for key in self._held if key[0] == store]
            digests = {digest for key in gone for digest in self._held.pop(key)}
            for digest in digests.difference(*self._held.values()):
                self._revoke(digest)

    def _take(self, store: str, change: Change) -> None:
        key = store, change.id
        wanted = {change.digest: change.until}
        if change.previous is not None and change.previous != change.digest:
            wanted[change.previous] = min(change.until, change.previous_until)
        for digest in self._held.get(key, ()):
            if digest not in wanted:
                self._revoke(digest)
        for digest, until in wanted.items():
            self._put(Stored(digest, change.status, until, change.id, change.grants))
        self._held[key] = tuple(wanted)

    def _put(self, stored: Stored) -> None:
        table = self._table
        try:
            if table is None:
                raise Full
            table.put(stored)
        except Full:
            self._grow(len(stored.grants)).put(stored)

    def _revoke(self, digest: bytes) -> None:
        if self._table is not None:
            self._table.mark(digest, Status.REVOKED)

    def _grow(self, more: int) -> WritableTable:
        """A larger table with all that the present one has, shown when the changes at hand are in it."""
        old = self._table
        keys, heap = (old.count, old.used) if old is not None else (0, 0)
        self._number += 1
        path = self._board.table_path(self._number)
        table = WritableTable.make(path, 2 * keys + 1, 2 * heap + more)
        for stored in old.stored() if old is not None else ():
            table.put(stored)
        self._table, self._shown = table, False
        return table

    def _show(self) -> None:
        if not self.is_complete:
            return
        if self._table is None:
            self._grow(0)
        if not self._shown:
            self._board.show_table(self._number)
            self._shown = True
