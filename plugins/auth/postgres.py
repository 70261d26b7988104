"""Keys in PostgreSQL, for gateways on several hosts: a change is told to all of them at once, and looked for too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from tailrace.plugins.auth.ring import Change
from tailrace.plugins.auth.store import Cursor, Follower, StoreFailed
from tailrace.proxy.config.secret import without_userinfo

if TYPE_CHECKING:
    import psycopg

_LIMITS: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 10_000,
    "application_name": "tailrace",
}
# One lock for all writers: versions then come in the order of commits, and a follower misses none.
_SCHEMA: Final = """
SELECT pg_advisory_xact_lock(7242117);
CREATE TABLE IF NOT EXISTS tailrace_keys (
    id text PRIMARY KEY, digest bytea NOT NULL UNIQUE, expires double precision, previous bytea,
    previous_until double precision, status integer NOT NULL, grants text NOT NULL, created double precision NOT NULL,
    version bigint NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS tailrace_keys_version ON tailrace_keys (version);
CREATE OR REPLACE FUNCTION tailrace_keys_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'keys are revoked, not deleted';
    END IF;
    PERFORM pg_advisory_xact_lock(7242117);
    SELECT coalesce(max(version), 0) + 1 INTO NEW.version FROM tailrace_keys;
    PERFORM pg_notify('tailrace_keys', '');
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER tailrace_keys_changed BEFORE INSERT OR UPDATE OR DELETE ON tailrace_keys
FOR EACH ROW EXECUTE FUNCTION tailrace_keys_change();
"""


class PostgresDatabase:
    """One connection, on which the table is made where it is missing."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise StoreFailed("PostgreSQL needs the extra: pip install 'tailrace[postgres]'") from None
        self._error: type[Exception] = psycopg.Error
        try:
            self.connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True, **_LIMITS)
            with self.connection.transaction():
                self.connection.execute(cast("Any", _SCHEMA))
        except psycopg.Error as error:
            raise StoreFailed(_told(error)) from error

    def execute(self, statement: str, values: Sequence[object] = ()) -> Cursor:
        """Run one statement."""
        try:
            return cast("Cursor", self.connection.execute(cast("Any", statement.replace("?", "%s")), values))
        except self._error as error:
            raise StoreFailed(_told(error)) from error

    def listen(self) -> None:
        """Hear of changes from now on."""
        self.execute("LISTEN tailrace_keys")

    def wait(self, seconds: float) -> None:
        """Until somebody has changed a key, or for so long."""
        try:
            for _ in self.connection.notifies(timeout=seconds, stop_after=1):
                return
        except self._error as error:
            raise StoreFailed(_told(error)) from error

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


class PostgresKeys:
    """Follows the table."""

    name = "postgres"
    every = 0.0

    def __init__(self, url: str) -> None:
        self._url = url
        self._database: PostgresDatabase | None = None
        self._follower: Follower | None = None

    def changes(self) -> Iterator[Change]:
        """What has changed since the last time; a lost connection is opened again, and goes on where it was."""
        database = self._database
        if database is None:
            database = PostgresDatabase(self._url)
            self._database = database
            database.listen()
        if self._follower is None:
            self._follower = Follower(database)
        self._follower.use(database)
        yield from self._follower.changes()

    def wait(self, seconds: float) -> None:
        """Until somebody has changed a key, or for so long."""
        if self._database is not None:
            self._database.wait(seconds)

    def close(self) -> None:
        """End the connection, to begin another at the next look."""
        if self._database is not None:
            self._database.close()
        self._database = None


def _told(error: Exception) -> str:
    """The first line of an error; what psycopg says of a bad URL may hold the password."""
    return without_userinfo(str(error).strip().partition("\n")[0])
