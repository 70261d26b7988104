"""Whose turn it is to accept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tailrace.proxy.share import Board, Share


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.create(3)
    yield made
    made.close()


def test_process_alone_takes_all(board: Board) -> None:
    share = Share(board, 0)
    share.join(0)
    assert share.may_take(1_000)


def test_process_ahead_leaves_it_to_the_others(board: Board) -> None:
    one, two = Share(board, 0), Share(board, 1)
    one.join(0)
    two.join(0)
    assert one.may_take(0)
    assert not one.may_take(1)
    assert two.may_take(0)
    two.note(1)
    assert one.may_take(1)


def test_of_many_connections_a_few_more_are_no_lead(board: Board) -> None:
    one, two = Share(board, 0), Share(board, 1)
    one.join(0)
    two.join(320)
    assert one.may_take(330)
    assert not one.may_take(331)


def test_process_that_left_or_died_is_not_waited_for(board: Board) -> None:
    one, two, three = (Share(board, seat) for seat in range(3))
    for share in (one, two, three):
        share.join(0)
    two.leave()
    two.note(0)
    board.vacate(2)
    assert one.may_take(100)


def test_board_is_shared_between_mappings(board: Board) -> None:
    import os

    other = Board(os.dup(board.fd), 3)
    Share(other, 1).join(5)
    assert board.least_beside(0) == 5
    other.close()
