"""What a client's kernel has taken of a stream, as far as that can be known before each write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tailrace.proxy.delivery import Delivery
from tailrace.proxy.outcome import Usage

pytestmark = pytest.mark.interpreted


class Stage:
    """A client whose transport holds back what a test says."""

    def __init__(self) -> None:
        self.waiting = 0
        self.written = 0
        self.told: list[int] = []
        self.harvest: Any = SimpleNamespace(prompt=9, completion=0, cached=0, pieces=0, followers=(self.hear,))
        transport: Any = SimpleNamespace(get_write_buffer_size=lambda: self.waiting)
        self.delivery = Delivery(SimpleNamespace(), self.harvest, transport)  # type: ignore[arg-type]

    def hear(self, usage: Usage, taken: int) -> None:
        self.told.append(usage.completion)

    def token(self, size: int = 100) -> None:
        """One token's event is written."""
        self.harvest.completion += 1
        self.delivery.moved(self.written)
        self.written += size
        self.waiting += size

    def taken(self, size: int) -> None:
        """The kernel takes some of what waits."""
        self.waiting -= size


def test_a_client_that_keeps_up_has_all_but_the_last() -> None:
    stage = Stage()
    for _ in range(5):
        stage.token()
        stage.taken(100)
    assert stage.told == [1, 2, 3, 4]
    assert stage.delivery.taken == 400
    assert stage.delivery.end() == Usage(9, 5, 0)


def test_a_client_that_lags_behind_has_what_the_kernel_took() -> None:
    stage = Stage()
    for _ in range(6):
        stage.token()
    assert stage.told == []
    stage.taken(250)
    stage.token()
    assert stage.told == [2]
    stage.taken(100)
    stage.token()
    assert stage.told == [2, 3]
    assert stage.delivery.taken == 350
    assert stage.delivery.end() == Usage(9, 3, 0)
    stage.taken(stage.waiting)
    stage.token()
    assert stage.told == [2, 3, 8]
    assert stage.delivery.end() == Usage(9, 9, 0)


def test_a_client_that_took_nothing_got_nothing() -> None:
    stage = Stage()
    assert stage.delivery.end() is None
    stage.token()
    stage.token()
    assert stage.delivery.end() is None


def test_pieces_that_were_counted_are_told_as_such() -> None:
    stage = Stage()
    stage.harvest.pieces = 3
    stage.delivery.moved(0)
    assert stage.delivery.end() == Usage(9, 3, 0, estimated=True)
