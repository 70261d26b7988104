"""What processes of a host share about circuits: words, and locks that end with whoever holds them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tailrace.plugins.breaker.board import SLOTS, Board, Verdict

OPEN = Verdict(True, 10, 20, 1, 2)


@pytest.fixture
def two(tmp_path: Path):
    boards = Board.open(tmp_path), Board.open(tmp_path)
    yield boards
    for board in boards:
        board.close()


def write(board: Board, name: str, verdict: Verdict = OPEN) -> int:
    with board.locked() as mine:
        assert mine
        slot = board.place(name)
        assert slot is not None
        board.write(slot, verdict)
        return slot


def test_what_one_writes_the_other_reads(two):
    one, other = two
    before = other.epoch
    slot = write(one, "http://a:1")
    assert other.epoch != before
    assert list(other.known()) == [("http://a:1", slot)]
    assert other.read(slot) == OPEN


def test_a_worker_keeps_its_slot(two):
    one, other = two
    first, second = write(one, "a"), write(one, "b")
    assert first != second
    assert (write(other, "a"), write(other, "b")) == (first, second)


def test_the_table_has_one_holder(two):
    one, other = two
    with one.locked() as mine:
        assert mine
        with other.locked() as theirs:
            assert not theirs
    with other.locked() as theirs:
        assert theirs


def test_a_probe_has_one_holder(two):
    one, other = two
    assert one.take_probe(3)
    assert not other.take_probe(3)
    assert other.take_probe(4)
    one.return_probe(3)
    assert other.take_probe(3)


def test_closing_a_board_gives_its_probes_back(tmp_path: Path):
    one, other = Board.open(tmp_path), Board.open(tmp_path)
    assert one.take_probe(0)
    one.close()
    assert other.take_probe(0)
    other.close()


HOLD = """
import sys, time
from pathlib import Path
from tailrace.plugins.breaker.board import Board
board = Board.open(Path(sys.argv[1]))
assert board.take_probe(0)
print("held", flush=True)
time.sleep(60)
"""


def test_RTE_07_a_killed_process_gives_its_probe_back(tmp_path: Path):
    board = Board.open(tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert not board.take_probe(0)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert board.take_probe(0)
    finally:
        holder.kill()
        holder.communicate()
        board.close()


def test_it_outlives_whoever_made_it(tmp_path: Path):
    first = Board.open(tmp_path)
    slot = write(first, "a")
    first.close()
    second = Board.open(tmp_path)
    assert second.read(slot) == OPEN
    second.close()


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\xff" * (64 + SLOTS * 256)])
def test_what_is_no_board_becomes_one(tmp_path: Path, content: bytes):
    (tmp_path / "circuits").write_bytes(content)
    board = Board.open(tmp_path)
    assert list(board.known()) == []
    write(board, "a")
    board.close()


def test_a_full_board_forgets_who_has_been_well_longest(two):
    board = two[0]
    for number in range(SLOTS):
        write(board, f"w{number}", Verdict(number != 7, 1000 + number, 0, 1, 1))
        board.spare(number, True)
    slot = write(board, "new")
    assert slot == 7
    assert not board.spares(7)
    assert two[1].spares(8)
    assert board.read(slot) == OPEN
    names = dict(board.known())
    assert "w7" not in names
    assert names["new"] == 7
    with board.locked():
        assert board.place("another") is None


def test_long_names_are_told_apart(two):
    board = two[0]
    names = ["http://" + "x" * 300 + "1", "http://" + "x" * 300 + "2"]
    assert write(board, names[0]) != write(board, names[1])
