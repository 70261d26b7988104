"""Keys in a database: the statements that SQLite and PostgreSQL share, for those who change keys and who follow them.

Every change of a row gives it a version above all others, in the order of commits, so that a follower reads what is
new and nothing else. Rows are never deleted, which a follower could not see: triggers refuse it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from tailrace.plugins.auth.record import FOREVER, Record, Status, identity_of, packed
from tailrace.plugins.auth.ring import Change

_AT_ONCE: Final = 500


class StoreFailed(Exception):  # noqa: N818 - a fact about the store
    """The database cannot be used now; the text says why, without its password."""


class WentBack(Exception):  # noqa: N818 - a fact about the store
    """The database has an older state than it had, as after a backup was restored: all of it has to be read again."""


class Unknown(LookupError):  # noqa: N818 - a fact about an id
    """There is no key of this id."""


class Cursor(Protocol):
    """What both drivers give for a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchall(self) -> Sequence[Any]:
        """Every row."""

    def fetchmany(self, size: int) -> Sequence[Any]:
        """Some rows."""


class Database(Protocol):
    """One connection; a statement has `?` where values go. Raises StoreFailed for whatever goes wrong."""

    def execute(self, statement: str, values: Sequence[object] = ()) -> Cursor:
        """Run one statement, which is committed at once."""

    def close(self) -> None:
        """Let go of it."""


class KeyStore:
    """What `tailrace keys` does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def add(self, record: Record) -> None:
        """Store a new key; StoreFailed where its id or digest is taken."""
        self._database.execute(
            "INSERT INTO tailrace_keys (id, digest, expires, previous, previous_until, status, grants, created) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*_row(record), record.created),
        )

    def all(self) -> Iterator[Record]:
        """Every key, by age."""
        cursor = self._database.execute(
            "SELECT id, digest, expires, previous, previous_until, status, grants, created "
            "FROM tailrace_keys ORDER BY created, id"
        )
        while rows := cursor.fetchmany(_AT_ONCE):
            for row in rows:
                yield _record(row)

    def set_status(self, key_id: str, status: Status) -> None:
        """Disable, enable or revoke; what was revoked stays so. Raises Unknown."""
        self._changed(
            key_id,
            "UPDATE tailrace_keys SET status = ? WHERE id = ? AND status <> ?",
            (int(status), key_id, int(Status.REVOKED)),
        )

    def rotate(self, key_id: str, digest: bytes, overlap: float) -> None:
        """Another key takes the place of the present one, which goes on for `overlap` seconds. Raises Unknown."""
        self._changed(
            key_id,
            "UPDATE tailrace_keys SET previous = digest, previous_until = ?, digest = ? WHERE id = ? AND status <> ?",
            (time.time() + overlap, digest, key_id, int(Status.REVOKED)),
        )

    def _changed(self, key_id: str, statement: str, values: Sequence[object]) -> None:
        if not self._database.execute(statement, values).rowcount:
            raise Unknown(f"there is no key '{key_id}' that has not been revoked")


class Follower:
    """Reads what has changed since it was last asked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen = 0

    def use(self, database: Database) -> None:
        """Go on over another connection."""
        self._database = database

    def changes(self) -> Iterator[Change]:
        """Rows with a version that was not seen yet; raises WentBack, once, where older ones are the newest now."""
        [(newest,)] = self._database.execute("SELECT coalesce(max(version), 0) FROM tailrace_keys").fetchall()
        if newest < self._seen:
            self._seen = 0
            raise WentBack
        if newest == self._seen:
            return
        cursor = self._database.execute(
            "SELECT id, digest, expires, previous, previous_until, status, grants "
            "FROM tailrace_keys WHERE version > ? AND version <= ?",
            (self._seen, newest),
        )
        while rows := cursor.fetchmany(_AT_ONCE):
            yield from map(_change, rows)
        self._seen = newest


def _row(record: Record) -> tuple[object, ...]:
    return (
        record.id,
        record.digest,
        None if record.expires == FOREVER else record.expires,
        record.previous,
        record.previous_until,
        int(record.status),
        packed(record).decode(),
    )


def _change(row: Sequence[Any]) -> Change:
    key_id, digest, expires, previous, previous_until, status, grants = row
    until = FOREVER if expires is None else expires
    return Change(key_id, bytes(digest), until, _bytes(previous), previous_until or 0.0, status, grants.encode())


def _record(row: Sequence[Any]) -> Record:
    *followed, created = row
    key_id, digest, until, previous, previous_until, status, grants = _change(followed)
    identity = identity_of(key_id, grants, until)
    record = Record(id=key_id, digest=digest, tenant=identity.tenant, tags=identity.tags, limits=identity.limits)
    return replace(
        record,
        models=identity.models,
        routes=identity.routes,
        classes=identity.classes,
        expires=until,
        status=Status(status),
        created=created,
        previous=previous,
        previous_until=previous_until,
    )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
