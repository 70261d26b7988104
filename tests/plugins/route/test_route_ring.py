"""The ring: even shares, few moves, the same everywhere."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from tailrace.plugins.route.ring import Ring

pytestmark = pytest.mark.interpreted
KEYS = [crc32(b"%d" % number) for number in range(4000)]


def named(name: str, weight: float = 1.0) -> Any:
    return Named(name=name, weight=weight)


class Named(SimpleNamespace):
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def pool(count: int) -> list[Any]:
    return [named(f"http://10.0.0.{number}:8000") for number in range(count)]


def owners(ring: Ring, among: Any, keys: list[int] = KEYS) -> list[str | None]:
    return [worker.name if (worker := ring.lead(key, among)) is not None else None for key in keys]


def test_shares_are_about_even():
    workers = pool(8)
    counts = Counter(owners(Ring(workers), workers))
    assert len(counts) == 8
    assert max(counts.values()) < 1.6 * len(KEYS) / 8


def test_who_joins_takes_its_share_and_moves_nothing_else():
    workers = pool(9)
    before, after = owners(Ring(workers[:8]), workers), owners(Ring(workers), workers)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {workers[8].name}
    assert len(moved) < len(KEYS) * 0.2


def test_who_is_not_eligible_is_passed_over_and_moves_nothing_else():
    workers = pool(8)
    ring = Ring(workers)
    before, after = owners(ring, workers), owners(ring, workers[1:])
    assert workers[0].name not in after
    assert all(new == old for old, new in zip(before, after, strict=True) if old != workers[0].name)
    assert len({new for old, new in zip(before, after, strict=True) if old == workers[0].name}) > 3


def test_the_order_in_which_workers_are_known_means_nothing():
    workers = pool(20)
    assert owners(Ring(workers), workers) == owners(Ring(workers[::-1]), workers)


def test_a_key_leads_to_the_same_worker_for_good():
    workers = pool(5)
    led = owners(Ring(workers), workers, [0, 1 << 29, 1 << 30, 3 << 29, 1 << 31, 3 << 30, (1 << 32) - 1])
    assert [name.split(":")[1][-1] for name in led] == ["3", "0", "3", "1", "4", "4", "3"]


def test_more_weight_is_a_larger_share():
    workers = [*pool(7), named("http://10.0.1.1:8000", 3.0)]
    counts = Counter(owners(Ring(workers), workers))
    assert counts[workers[7].name] == pytest.approx(len(KEYS) * 0.3, rel=0.3)


def test_no_weight_is_no_share():
    workers = [*pool(3), named("http://10.0.1.1:8000", 0.0)]
    assert workers[3].name not in owners(Ring(workers), workers)


@pytest.mark.parametrize("workers", [[], pool(3)])
def test_nobody_eligible_is_nobody(workers: list[Any]):
    assert owners(Ring(workers), (), KEYS[:5]) == [None] * 5


def test_a_huge_weight_is_bounded():
    worker = named("http://10.0.0.1:8000", 1e12)
    assert Ring([worker]).lead(5, [worker]) is worker
