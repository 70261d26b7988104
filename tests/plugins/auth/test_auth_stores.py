"""Where keys come from: files, SQLite, a real PostgreSQL; what happens while one of them is down."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
from collections.abc import Iterator

import pytest
from fakes import run, until
from keys import ask, bearer, becomes, create, guarded, id_of, keys, plugin_of, status
from postgres import Postgres, postgres
from tailrace.plugins.auth.postgres import PostgresDatabase
from tailrace.plugins.auth.record import Record
from tailrace.plugins.auth.sqlite import SqliteDatabase
from tailrace.plugins.auth.store import Follower, KeyStore, StoreFailed, Unknown
from tailrace.proxy.limit import Limit


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


@pytest.fixture
def database(server: Postgres) -> Iterator[Postgres]:
    """The server, running, with no key in it."""
    server.stop()
    server.start()
    fresh = PostgresDatabase(server.url)
    fresh.execute("DROP TABLE tailrace_keys")
    fresh.close()
    yield server
    server.signal(signal.SIGCONT)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path) -> Iterator[tuple[KeyStore, Follower]]:
    """Two connections to one store: who changes keys, and who follows them."""
    if request.param == "sqlite":
        both = [SqliteDatabase(tmp_path / "keys.sqlite") for _ in range(2)]
    else:
        url = request.getfixturevalue("database").url
        both = [PostgresDatabase(url) for _ in range(2)]  # type: ignore[misc]
    yield KeyStore(both[0]), Follower(both[1])
    for each in both:
        each.close()


def record(key_id: str, **more) -> Record:
    return Record(id=key_id, digest=hashlib.sha256(key_id.encode()).digest(), tenant="acme", **more)


def test_a_follower_reads_each_change_once(store):
    keys_, follower = store
    assert list(follower.changes()) == []
    keys_.add(record("a"))
    keys_.add(record("b", expires=2e9))
    assert sorted((change.id, change.status, change.until) for change in follower.changes()) == [
        ("a", 1, float("inf")),
        ("b", 1, 2e9),
    ]
    assert list(follower.changes()) == []
    keys_.set_status("a", 2)
    assert [(change.id, change.status) for change in follower.changes()] == [("a", 2)]
    keys_.rotate("b", bytes(32), 60)
    [change] = follower.changes()
    assert (change.digest, change.previous) == (bytes(32), record("b").digest)


def test_what_is_stored_comes_back_whole(store):
    keys_, _ = store
    whole = record(
        "whole", tags=("t",), models=("m", "n*"), routes=("chat",), classes=(), limits=(Limit("requests", 5, "day"),)
    )
    keys_.add(whole)
    assert list(keys_.all()) == [whole]


def test_ids_and_digests_stand_once_and_unknown_ids_are_told(store):
    keys_, _ = store
    keys_.add(record("a"))
    with pytest.raises(StoreFailed):
        keys_.add(record("a"))
    for change in (lambda: keys_.set_status("b", 2), lambda: keys_.rotate("b", bytes(32), 1)):
        with pytest.raises(Unknown):
            change()
    keys_.set_status("a", 3)
    with pytest.raises(Unknown, match="revoked"):
        keys_.set_status("a", 1)


def test_rows_cannot_be_deleted_unseen(store):
    keys_, _ = store
    keys_.add(record("a"))
    with pytest.raises(StoreFailed, match="not deleted"):
        keys_._database.execute("DELETE FROM tailrace_keys")


def test_changes_of_one_gateway_reach_the_others(tmp_path, database):
    config = f'{{database: "{database.url}"}}'

    async def body():
        async with guarded(tmp_path / "one", config) as one, guarded(tmp_path / "two", config) as two:
            key = keys("create", "--database", database.url, "--tenant", "acme")
            for s in (one, two):
                await becomes(s, key, 200, limit=2)
            fresh = keys("rotate", "--database", database.url, id_of(key), "--overlap", "1h")
            for s in (one, two):
                await becomes(s, fresh, 200, limit=2)
                assert await status(s, key) == 200
            keys("revoke", "--database", database.url, id_of(key))
            for s in (one, two):
                await becomes(s, key, 401, limit=2)
                assert await status(s, fresh) == 401

    run(body())


def test_a_database_that_is_down_frozen_or_restarted_delays_nobody(tmp_path, database, caplog):
    caplog.set_level("INFO")
    config = f'{{database: "{database.url}", stale_for: 1}}'
    key = keys("create", "--database", database.url, "--tenant", "acme")

    async def body():
        async with guarded(tmp_path, config) as s:
            assert await status(s, key) == 200
            database.stop()
            assert await status(s, key) == 200
            await becomes(s, key, 503)
            answer = await ask(s, bearer("unknown"))
            assert (answer.status, answer.json()["error"]["code"]) == (503, "auth_unavailable")
            assert (await ask(s)).status == 401
            assert any("auth: the keys could not be read" in reason for reason in s.process._host.unready())
            metrics = {name: value for name, _, value in plugin_of(s).metrics()}
            assert metrics["table_age_seconds"] > 1
            assert metrics["keys"] == 1
            database.start()
            await becomes(s, key, 200)
            assert s.process._host.unready() == []
            database.signal(signal.SIGSTOP)
            assert await status(s, key) == 200
            await becomes(s, key, 503)
            database.signal(signal.SIGCONT)
            await becomes(s, key, 200)
            keys("revoke", "--database", database.url, id_of(key))
            await becomes(s, key, 401, limit=2)

    run(body(), limit=60)
    assert "the keys in postgres cannot be read, the last known ones stay" in caplog.text
    assert "can be read again" in caplog.text


def test_a_database_that_is_down_at_the_start_is_waited_for(tmp_path, database):
    key = keys("create", "--database", database.url, "--tenant", "acme")
    database.stop()

    async def body():
        async with guarded(tmp_path, f'{{database: "{database.url}", single_key: "one-for-all-of-us"}}') as s:
            assert await status(s, key) == 503
            assert await status(s, "one-for-all-of-us") == 200
            assert s.process._host.unready()
            database.start()
            await becomes(s, key, 200)
            assert s.process._host.unready() == []

    run(body(), limit=60)


def test_a_database_that_was_restored_to_an_older_state_is_read_anew(tmp_path, database):
    config = f'{{database: "{database.url}"}}'
    older, newer = (keys("create", "--database", database.url, "--tenant", "acme") for _ in range(2))

    async def body():
        async with guarded(tmp_path, config) as s:
            assert await status(s, older) == await status(s, newer) == 200
            by_hand = PostgresDatabase(database.url)
            with by_hand.connection.transaction():
                by_hand.execute("ALTER TABLE tailrace_keys DISABLE TRIGGER ALL")
                by_hand.execute("DELETE FROM tailrace_keys WHERE id = ?", (id_of(newer),))
                by_hand.execute("ALTER TABLE tailrace_keys ENABLE TRIGGER ALL")
            by_hand.close()
            await becomes(s, newer, 401, limit=2)
            assert await status(s, older) == 200

    run(body())


def test_a_database_url_is_not_told():
    with pytest.raises(StoreFailed) as error:
        PostgresDatabase("postgresql://someone:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(error.value)
    with pytest.raises(StoreFailed) as error:
        PostgresDatabase("postgresql://someone:hunter2@[x")
    assert "hunter2" not in str(error.value)


FILE = """
keys:
  - {{id: alice, digest: {alice}, tenant: acme, models: [m]}}
  - {{id: bob, digest: {bob}, tenant: acme, disabled: true, previous: {old}, previous_until: 2100-01-01}}
"""


def digests(**names: str) -> dict[str, str]:
    return {name: hashlib.sha256(key.encode()).hexdigest() for name, key in names.items()}


def who(s, key: str) -> str:
    """Whose a key was when it was last used."""
    return plugin_of(s)._grants.get(hashlib.sha256(key.encode()).digest()).identity.key


def test_a_file_of_keys_beside_the_database(tmp_path, caplog):
    file = tmp_path / "keys.yaml"
    text = FILE.format(**digests(alice="alice's key", bob="bob's key", old="bob's old key"))
    file.write_text(text)
    stored = create(tmp_path / "state")

    async def body():
        async with guarded(tmp_path / "state", f"{{keys: {file}}}") as s:
            assert await status(s, "alice's key") == 200
            assert await status(s, "bob's key") == await status(s, "bob's old key") == 401
            assert await status(s, stored) == 200
            file.write_text(text.replace("disabled: true", "disabled: false"))
            await becomes(s, "bob's key", 200)
            assert await status(s, "bob's old key") == 200
            file.write_text(text + "  - nonsense")
            await until(lambda: "the last known ones stay" in caplog.text)
            assert await status(s, "alice's key") == 200
            file.write_text(text.replace("alice", "carol").replace("disabled: true", "disabled: false"))
            while who(s, "alice's key") != "carol":  # the same key by another name
                await status(s, "alice's key")
            assert await status(s, "alice's key") == 200
            file.write_text("keys: []")
            await becomes(s, "alice's key", 401)
            assert await status(s, stored) == 200

    run(body())


def test_an_embedded_file_that_is_replaced_is_read_anew_and_one_that_is_gone_is_told(tmp_path, caplog):
    key, later = create(tmp_path / "state"), create(tmp_path / "backup")
    file, backup = tmp_path / "state" / "keys.sqlite", tmp_path / "backup" / "keys.sqlite"

    async def body():
        async with guarded(tmp_path / "state") as s:
            assert await status(s, key) == 200
            file.rename(tmp_path / "away")
            await until(lambda: "keys.sqlite is gone" in caplog.text)
            assert await status(s, key) == 200
            backup.rename(file)
            await becomes(s, later, 200)
            await becomes(s, key, 401)

    run(body())


def test_the_embedded_file_that_cannot_be_read_is_told(tmp_path, caplog):
    key = create(tmp_path)

    async def body():
        async with guarded(tmp_path, keep=True) as s:
            assert await status(s, key) == 200

    run(body())
    (tmp_path / "keys.sqlite").write_bytes(b"no database" * 1000)
    for rest in ("keys.sqlite-wal", "keys.sqlite-shm"):
        (tmp_path / rest).unlink(missing_ok=True)
    with pytest.raises((StoreFailed, sqlite3.Error)):
        SqliteDatabase(tmp_path / "keys.sqlite")

    async def broken():
        async with guarded(tmp_path) as s:
            # What the supervisor before this one knew is the last known state.
            assert await status(s, key) == 200
        async with guarded(tmp_path) as s:
            assert await status(s, key) == 503

    run(broken())
    assert "the keys in sqlite cannot be read" in caplog.text
