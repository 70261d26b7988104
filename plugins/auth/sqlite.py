"""The embedded store of keys: one SQLite file in the state folder, written by `tailrace keys`, followed by the host."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tailrace.plugins.auth.ring import Change
from tailrace.plugins.auth.store import Cursor, Follower, StoreFailed, WentBack

NAME: Final = "keys.sqlite"
_BUSY: Final = 5.0
_SCHEMA: Final = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS tailrace_keys (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, expires REAL, previous BLOB, previous_until REAL,
    status INTEGER NOT NULL, grants TEXT NOT NULL, created REAL NOT NULL, version INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS tailrace_keys_version ON tailrace_keys (version);
CREATE TRIGGER IF NOT EXISTS tailrace_keys_added AFTER INSERT ON tailrace_keys BEGIN
    UPDATE tailrace_keys SET version = (SELECT coalesce(max(version), 0) + 1 FROM tailrace_keys) WHERE id = NEW.id;
END;
CREATE TRIGGER IF NOT EXISTS tailrace_keys_changed
AFTER UPDATE OF digest, expires, previous, previous_until, status, grants ON tailrace_keys BEGIN
    UPDATE tailrace_keys SET version = (SELECT coalesce(max(version), 0) + 1 FROM tailrace_keys) WHERE id = NEW.id;
END;
CREATE TRIGGER IF NOT EXISTS tailrace_keys_deleted BEFORE DELETE ON tailrace_keys BEGIN
    SELECT RAISE(ABORT, 'keys are revoked, not deleted');
END;
COMMIT;
"""


class SqliteDatabase:
    """The file, made where it is missing."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                path.touch(mode=0o600)
                _give(path)
            self._connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{path}: {error}") from error

    def execute(self, statement: str, values: Sequence[object] = ()) -> Cursor:
        """Run one statement."""
        try:
            return self._connection.execute(statement, values)
        except sqlite3.Error as error:
            raise StoreFailed(str(error)) from error

    def data_version(self) -> int:
        """A number that changes with every commit of somebody else; reads no row."""
        [(number,)] = self.execute("PRAGMA data_version").fetchall()
        return int(number)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


class SqliteKeys:
    """Follows the file."""

    name = "sqlite"
    every = 0.2
    """Seconds between two looks, each of which costs microseconds while nothing has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: SqliteDatabase | None = None
        self._file: tuple[int, int] | None = None
        self._seen = -1

    def changes(self) -> Iterator[Change]:
        """What has changed since the last time; raises WentBack where another file is in its place."""
        if self._file is not None and self._file != _identity(self._path):
            self.close()
            if _identity(self._path) is None:
                raise StoreFailed(f"{self._path} is gone")
            self._file = None
            raise WentBack
        if self._database is None:
            self._database = SqliteDatabase(self._path)
            self._follower = Follower(self._database)
            self._file = _identity(self._path)
        number = self._database.data_version()
        if number != self._seen:
            yield from self._follower.changes()
            self._seen = number

    def wait(self, seconds: float) -> None:
        """Nobody tells: the looks are frequent."""

    def close(self) -> None:
        """Let go of the file, to open it anew at the next look."""
        if self._database is not None:
            self._database.close()
        self._database, self._seen = None, -1


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, whatever its name; None for none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _give(path: Path) -> None:
    """What root makes in a gateway's folder is the gateway's."""
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
