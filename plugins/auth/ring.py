"""The host part's table of keys, kept in step with what the stores say."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from tailrace.plugins.auth.board import Board
from tailrace.plugins.auth.record import Record, Status, packed
from tailrace.plugins.auth.table import Full, Stored, WritableTable

_AT_ONCE: Final = 100
"""Keys that are taken up before others in this process get their turn."""


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
        # By store and id: the digests that open something, one behind the other. A collection of garbage does not look
        # into such dictionaries; a hundred thousand tuples in them would make it a stall.
        self._held: dict[str, dict[str, bytes]] = {}

    @property
    def keys(self) -> int:
        """How many keys there are, revoked ones of this run included."""
        return sum(map(len, self._held.values()))

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
            for count, change in enumerate(changes, 1):
                with self._lock:
                    self._take(store, change)
                _give_way(count)
        finally:
            with self._lock:
                self._show()
        return count

    def forget(self, store: str) -> None:
        """A store is followed no more: what only it had is revoked."""
        with self._lock:
            gone = _all_of(self._held.pop(store, {}))
            for digest in gone.difference(*map(_all_of, self._held.values())):
                self._revoke(digest)

    def _take(self, store: str, change: Change) -> None:
        held = self._held.setdefault(store, {})
        if change.previous is None and change.id not in held:
            # What nearly all are at a start.
            self._put(Stored(change.digest, change.status, change.until, change.id, change.grants))
            held[change.id] = change.digest
            return
        wanted = {change.digest: change.until}
        if change.previous is not None and change.previous != change.digest:
            wanted[change.previous] = min(change.until, change.previous_until)
        for digest in _split(held.get(change.id, b"")):
            if digest not in wanted:
                self._revoke(digest)
        for digest, until in wanted.items():
            self._put(Stored(digest, change.status, until, change.id, change.grants))
        held[change.id] = b"".join(wanted)

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
        for count, stored in enumerate(old.stored() if old is not None else ()):
            table.put(stored)
            _give_way(count)
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


def _give_way(count: int) -> None:
    """Let the event loop of this process run: the interpreter would have it wait for milliseconds each time."""
    if not count % _AT_ONCE:
        time.sleep(0)


def _split(digests: bytes) -> list[bytes]:
    return [digests[at : at + 32] for at in range(0, len(digests), 32)]


def _all_of(held: dict[str, bytes]) -> set[bytes]:
    return {digest for digests in held.values() for digest in _split(digests)}
