"""Whose turn it is to accept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from fakes import RawClient, decoded, run, yaml_for
from tailrace.proxy.door import bind
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.role import Seat
from tailrace.proxy.share import Board, Share


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.create(3)
    yield made
    made.close()


def test_process_alone_takes_all(board: Board) -> None:
    share = Share(board, 0)
    share.join(0)
    assert share.may_take(1_000, 0.0)


def test_process_ahead_leaves_it_to_the_others(board: Board) -> None:
    one, two = Share(board, 0), Share(board, 1)
    one.join(0)
    two.join(0)
    assert one.may_take(0, 0.0)
    assert not one.may_take(1, 0.0)
    assert two.may_take(0, 0.0)
    two.note(1)
    assert one.may_take(1, 0.0)


def test_of_many_connections_a_few_more_are_no_lead(board: Board) -> None:
    one, two = Share(board, 0), Share(board, 1)
    one.join(0)
    two.join(320)
    assert one.may_take(330, 0.0)
    assert not one.may_take(331, 0.0)


def test_process_that_left_or_died_is_not_waited_for(board: Board) -> None:
    one, two, three = (Share(board, seat) for seat in range(3))
    for share in (one, two, three):
        share.join(0)
    two.leave()
    two.note(0)
    board.vacate(2)
    assert one.may_take(100, 0.0)


def test_board_is_shared_between_mappings(board: Board) -> None:
    other = Board(os.dup(board.fd), 3)
    Share(other, 1).join(5)
    assert board.least_beside(0, {}) == 5
    other.close()


def test_process_that_stands_still_is_waited_for_ever_more_rarely(board: Board) -> None:
    one, two, three = (Share(board, seat) for seat in range(3))
    for share in (one, two, three):
        share.join(0)
    now = 0.0
    for least in (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0):
        assert not one.may_take(1, now)
        seen = one.seen()
        three.note(1)
        one.pass_over(1, seen, now)
        assert one.may_take(1, now)
        assert not one.may_take(2, now)  # the third has moved, and is waited for
        three.note(0)
        three.note(100)
        assert one.may_take(2, now + least - 0.001)
        now += least + 0.001


def test_process_that_moves_again_is_waited_for(board: Board) -> None:
    one, two = Share(board, 0), Share(board, 1)
    one.join(0)
    two.join(0)
    one.pass_over(5, one.seen(), 0.0)
    assert one.may_take(5, 0.0)
    two.note(1)
    assert not one.may_take(5, 0.0)


def test_process_that_moved_in_time_is_not_passed_over(board: Board) -> None:
    one, two = Share(board, 0), Share(board, 1)
    one.join(0)
    two.join(0)
    seen = one.seen()
    two.note(1)
    one.pass_over(5, seen, 0.0)
    assert not one.may_take(5, 0.0)


def test_patience_is_not_paid_for_every_connection(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that, this takes ten times as long as `run` lets it."""
    monkeypatch.setattr("tailrace.proxy.arrivals.PATIENCE", 0.5)
    monkeypatch.setattr("tailrace.proxy.share.PASSED_OVER", 60.0)
    Share(board, 1).join(0)

    async def body() -> None:
        settings = decoded(yaml_for("http://127.0.0.1:1"))
        process = GatewayProcess(settings, Seat(index=0, count=3, board=board.fd), watching=False)
        await process.load(settings)
        await process.open([bind(listener) for listener in settings.listen])
        try:
            async with AsyncExitStack() as stack:
                for _ in range(200):
                    client = await stack.enter_async_context(RawClient(process.doors[0].shown))
                    assert (await client.get("/healthz")).status == 200
        finally:
            await process.close()

    run(body(), limit=10)
