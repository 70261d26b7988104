"""When a client counts as one that takes nothing: after a whole limit in which bytes waited for it, and not sooner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tailrace.proxy.attended import Attended
from tailrace.proxy.limits import Timeouts

pytestmark = pytest.mark.interpreted

LIMIT = Timeouts().client_write


class Transport:
    """Holds so many bytes that the client has not taken."""

    def __init__(self) -> None:
        self.left = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True


class Visited(Attended):
    """A connection that is looked at when the test says so; `busy` while a call runs."""

    def __init__(self) -> None:
        service: Any = SimpleNamespace(
            clock=SimpleNamespace(now=1000.0), loop=None, chain=SimpleNamespace(timeouts=Timeouts())
        )
        super().__init__(service)
        self.taking = Transport()
        self.transport = self.taking  # type: ignore[assignment]

    def at(self, now: float, *, left: int, busy: bool = False) -> bool:
        """Look at it with so many bytes left; whether it was given up."""
        self.taking.left = left
        self.call = SimpleNamespace(complete=True, visit=lambda _: None) if busy else None  # type: ignore[assignment]
        self.touched = now
        self.visit(now)
        return self.taking.aborted


def test_bytes_that_wait_at_the_first_look() -> None:
    """The connection has never been seen at rest: nothing is known of how long they have waited."""
    client = Visited()
    assert not client.at(1000.1, left=500)
    assert not client.at(1000.1 + LIMIT, left=500)
    assert client.at(1000.2 + LIMIT, left=500)


def test_bytes_that_are_left_of_a_long_answer() -> None:
    client = Visited()
    assert not client.at(1000.1, left=500)
    for second in range(1, 100):
        assert not client.at(1000 + second, left=500, busy=True)
    assert not client.at(1100, left=600)
    assert not client.at(1100 + LIMIT, left=600)
    assert client.at(1100.1 + LIMIT, left=600)


def test_whatever_is_taken_counts_as_life() -> None:
    client = Visited()
    for step in range(10):
        assert not client.at(1000 + step * LIMIT, left=500 - step)
    assert client.at(1000.1 + 10 * LIMIT, left=491)


def test_nothing_left_is_no_stall() -> None:
    client = Visited()
    assert not client.at(1000, left=500)
    assert not client.at(1000 + LIMIT, left=0)
    assert not client.at(1001 + LIMIT, left=500)
