"""A call's time: what is due when, and what the next hop is told."""

from __future__ import annotations

import pytest
from tailrace.proxy.budget import Budget, milliseconds

MS = 1_000_000


@pytest.mark.parametrize(
    ("value", "ms"), [(b"1", 1), (b"0", 0), (b"600", 600), (b"", None), (b"-1", None), (b"1.5", None), (b"9" * 9, None)]
)
def test_milliseconds_on_the_wire(value: bytes, ms: int | None):
    assert milliseconds(value) == (None if ms is None else ms * MS)


@pytest.mark.parametrize(("ends", "first", "due"), [(0, 0, 0), (5, 0, 5), (0, 3, 3), (5, 3, 3), (3, 5, 3)])
def test_what_is_due_first(ends: int, first: int, due: int):
    assert Budget(ends_ns=ends, first_ns=first).due_ns == due


def test_nothing_is_said_of_what_is_not_bounded():
    assert Budget().lines(0) == b""
    assert Budget().left_ns(7) is None
    assert Budget(queue_ns=5).left_ns(7) is None


def test_what_is_left_travels_less_the_reserve():
    budget = Budget(ends_ns=600 * MS, first_ns=200 * MS, reserve_ns=50 * MS)
    assert budget.lines(100 * MS + 1) == b"x-tailrace-budget-ms: 449\r\nx-tailrace-ttft-ms: 49\r\n"
    assert budget.lines(900 * MS) == b"x-tailrace-budget-ms: 0\r\nx-tailrace-ttft-ms: 0\r\n"
    assert Budget(ends_ns=600 * MS).lines(0) == b"x-tailrace-budget-ms: 600\r\n"


def test_a_workers_part_is_what_it_may_take_at_most():
    assert Budget(model_ns=250 * MS).lines(0) == b"x-tailrace-ttft-ms: 250\r\n"
    budget = Budget(ends_ns=600 * MS, model_ns=250 * MS)
    assert budget.left_ns(0) == 250 * MS
    assert budget.left_ns(500 * MS) == 100 * MS


def test_what_a_hop_before_says():
    told = Budget.told(b"600", b"200", 1000 * MS)
    assert told is not None
    assert (told.ends_ns, told.first_ns) == (1600 * MS, 1200 * MS)
    over = Budget.told(b"0", None, 1000 * MS)
    assert over is not None
    assert over.left_ns(1000 * MS) == 0
    assert Budget.told(None, None, 1) is None
    assert Budget.told(b"soon", b"x", 1) is None
