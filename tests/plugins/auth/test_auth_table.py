"""The table of keys in shared memory: what is put in is found, a word changes it for every reader, it grows."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailrace.plugins.auth.board import Board
from tailrace.plugins.auth.record import FOREVER, Status
from tailrace.plugins.auth.ring import Change, KeyRing
from tailrace.plugins.auth.table import Full, KeyTable, Stored, WritableTable


def digest(number: object) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def stored(number: object, grants: bytes = b"{}", status: int = Status.LIVE) -> Stored:
    return Stored(digest(number), status, FOREVER, f"k{number}", grants)


def change(key_id: str, number: object, *, previous: object = None, status: int = Status.LIVE) -> Change:
    old = None if previous is None else digest(previous)
    return Change(key_id, digest(number), FOREVER, old, FOREVER, status, b"{}")


def found(table: KeyTable, number: object) -> Stored | None:
    slot = table.slot_of(digest(number))
    return None if slot < 0 else table.entry(slot, table.words[slot])


def test_what_is_put_in_is_found_by_another_reader(tmp_path):
    table = WritableTable.make(tmp_path / "t", 10, 0)
    reader = KeyTable.open(tmp_path / "t")
    assert found(reader, 1) is None
    for number in range(600):
        table.put(stored(number, b"x" * number))
    assert all(found(reader, number) == stored(number, b"x" * number) for number in range(600))
    assert found(reader, 600) is None
    slot = reader.slot_of(digest(5))
    before = reader.words[slot]
    table.mark(digest(5), Status.REVOKED)
    assert reader.words[slot] == before & ~0xFF | Status.REVOKED
    table.put(stored(5, b"new"))
    assert reader.words[slot] not in (before, before & ~0xFF | Status.REVOKED)
    assert found(reader, 5) == stored(5, b"new")
    assert {each.id for each in table.stored()} == {f"k{number}" for number in range(600)}


def test_digests_that_fall_into_one_slot_are_told_apart(tmp_path):
    table = WritableTable.make(tmp_path / "t", 1, 0)
    same = [bytes(8) + bytes([number]) * 24 for number in range(50)]
    for number, each in enumerate(same):
        table.put(Stored(each, Status.LIVE, FOREVER, str(number), b"{}"))
    for number, each in enumerate(same):
        slot = table.slot_of(each)
        assert table.entry(slot, table.words[slot]).id == str(number)
    assert table.slot_of(bytes(8) + bytes([99]) * 24) == -1


def test_a_full_table_says_so(tmp_path):
    table = WritableTable.make(tmp_path / "t", 1, 0)
    with pytest.raises(Full):
        for number in range(5000):
            table.put(stored(number))
    assert found(table, 0) == stored(0)
    with pytest.raises(Full):
        table.put(stored(0, bytes(1 << 20)))


@pytest.mark.parametrize("content", [b"", b"x" * 10, b"x" * 5000, b"tr-keys1" + b"\xff" * 100])
def test_a_file_that_is_no_table_is_refused(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(ValueError, match=r"no table|empty file"):
        KeyTable.open(tmp_path / "t")


def ring_in(folder: Path) -> tuple[KeyRing, Board]:
    board = Board(folder, writable=True)
    ring = KeyRing(board)
    ring.complete()
    return ring, board


def present(board: Board) -> KeyTable:
    return KeyTable.open(board.table_path(board.table))


def test_the_ring_grows_and_lets_go_of_older_tables(tmp_path):
    ring, board = ring_in(tmp_path)
    first = present(board)
    ring.apply("a", (change(f"k{number}", number) for number in range(3000)))
    assert board.table > 1
    assert [path.name for path in tmp_path.glob("auth.keys.*")] == [f"auth.keys.{board.table}"]
    table = present(board)
    assert all(found(table, number) for number in range(3000))
    assert first.slot_of(digest(2999)) == -1  # who has mapped an old one keeps it


def test_the_next_supervisor_shows_nothing_before_it_knows_all(tmp_path):
    ring, board = ring_in(tmp_path)
    ring.apply("a", [change("x", 1)])
    number = board.table
    again = KeyRing(Board(tmp_path, writable=True))
    again.apply("file", [change("y", 2)])
    assert board.table == number
    assert found(present(board), 1)
    again.complete()
    assert board.table != number
    assert found(present(board), 2)
    assert not found(present(board), 1)


def test_a_store_that_is_forgotten_takes_only_its_own_keys_along(tmp_path):
    ring, board = ring_in(tmp_path)
    ring.apply("old", [change("x", 1), change("y", 2)])
    ring.apply("new", [change("x", 1)])
    ring.forget("old")
    table = present(board)
    one, two = found(table, 1), found(table, 2)
    assert one is not None
    assert two is not None
    assert (one.status, two.status) == (Status.LIVE, Status.REVOKED)


def test_memory_that_is_not_there_is_an_error_and_the_old_table_stays(tmp_path, monkeypatch):
    ring, board = ring_in(tmp_path)
    ring.apply("a", [change("x", 1)])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        ring.apply("a", (change(f"k{number}", number) for number in range(3000)))
    assert found(present(board), 1)


def test_a_page_that_is_older_than_the_clock_says_nothing(tmp_path):
    board = Board(tmp_path, writable=True)
    assert board.age == float("inf")
    board.confirm(time.monotonic_ns() + 10**12, 1)
    assert board.age == float("inf")
    board.confirm(time.monotonic_ns(), 1)
    assert board.age < 60


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 8), st.integers(0, 8) | st.none(), st.sampled_from(list(Status))
        ),
        max_size=30,
    )
)
def test_whatever_changes_come_the_last_of_each_key_counts(tmp_path_factory, changes):
    ring, board = ring_in(tmp_path_factory.mktemp("ring"))
    # One digest belongs to one key, as the stores see to.
    made = [
        change(key, f"{key}{now}", previous=old and f"{key}{old}", status=status) for key, now, old, status in changes
    ]
    for each in made:
        ring.apply("s", [each])
    table = present(board)
    last = {each.id: each for each in made}
    for each in made:
        for one in filter(None, (each.digest, each.previous)):
            slot = table.slot_of(one)
            wanted = last[each.id].status if one in (last[each.id].digest, last[each.id].previous) else Status.REVOKED
            assert table.words[slot] & 0xFF == wanted
