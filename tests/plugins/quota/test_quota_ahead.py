"""Leases for windows that are yet to come, and limits that are changed while they are in use; on a fake clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import REQUESTS, SMALL, Host, Time
from tailrace.plugins.quota.purse import AHEAD, IDLE
from tailrace.plugins.quota.terms import Counter, Granted


def test_the_first_call_of_a_window_finds_a_lease_that_was_asked_for_before(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 2)
    one, other = host.processes
    assert one.spend(REQUESTS, 1)
    edge = host.to_the_edge()
    host.time.now = edge - AHEAD / 2
    assert one.spend(REQUESTS, 1)
    one.purse.sweep()
    assert one.wanted
    one.refill()
    one.purse.sweep()
    assert not one.wanted  # once is enough
    host.time.now = edge + 0.001
    ask, one.ask = one.ask, pytest.fail  # type: ignore[method-assign, assignment]
    assert one.spend(REQUESTS, 1)
    one.ask = ask  # type: ignore[method-assign]
    assert sum(process.spend(REQUESTS, 1) for _ in range(1500) for process in (one, other)) == 999
    host.close()


def test_a_lease_that_was_asked_for_ahead_is_given_back_where_nobody_comes(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 2)
    one, other = host.processes
    assert one.spend(REQUESTS, 1)
    edge = host.to_the_edge()
    host.time.now = edge - 0.1
    assert one.spend(REQUESTS, 1)
    one.purse.sweep()
    one.refill()
    for moment in (edge + 0.01, edge + IDLE + 0.02):
        host.time.now = moment
        one.purse.sweep()
    assert sum(other.spend(REQUESTS, 1) for _ in range(1500)) == 1000
    host.close()


def test_an_answer_that_comes_after_its_window_began_or_ended_is_not_lost(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 1)
    [one] = host.processes
    second = Counter("s", 40, "second")
    for late in (0.05, 1.3, 5.0):
        host.time.now += 1 - (host.time.now + 1_700_000_000) % 1 + 0.8
        assert one.spend(second, 1)
        one.wanted.clear()
        one.purse.sweep()
        [(counter, at)] = one.wanted
        one.wanted.clear()
        one.purse.asking(counter.name)
        answer = host.authority.lease(one.book.path.name, counter, 0, 0, host.authority.window(counter, at))
        assert isinstance(answer, Granted)
        host.time.now += 0.2 + late
        one.purse.sweep()
        one.purse.hear(counter, answer, at)
        one.purse.sweep()
        host.time.now += 1
        assert sum(one.spend(second, 1) for _ in range(60)) == 40
    host.close()


def test_LIM_12_a_lowered_limit_takes_back_what_was_lent_and_a_raised_one_serves_at_once(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 2)
    one, other = host.processes
    assert all(process.spend(REQUESTS, 1) for process in (one, other) for _ in range(5))
    lowered = Counter(REQUESTS.name, 12, "minute")
    assert sum(process.spend(lowered, 1) for _ in range(20) for process in (one, other)) == 2
    raised = Counter(REQUESTS.name, 40, "minute")
    host.time.now += IDLE + 0.1
    for process in (one, other):
        process.purse.sweep()
    assert sum(process.spend(raised, 1) for _ in range(40) for process in (one, other)) == 28
    host.close()


def test_LIM_12_a_new_window_or_zone_begins_at_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 1)
    [one] = host.processes
    whole, daily, zoned = (
        Counter(f"key:a/money/{per}/{zone}", 10**12, per, zone)
        for per, zone in (("total", "UTC"), ("day", "UTC"), ("day", "Asia/Tokyo"))
    )
    assert one.spend(whole, 9 * 10**11)
    assert one.spend(daily, 10**12)
    assert not one.spend(daily, 1)
    assert one.spend(zoned, 10**12)
    assert one.spend(whole, 10**11)
    assert not one.spend(whole, 1)
    host.close()


def test_LIM_12_a_process_that_was_refused_without_a_lease_asks_again_once_the_limit_is_raised(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 2)
    one, other = host.processes
    assert sum(one.spend(SMALL, 1) for _ in range(9)) == 7
    assert not other.spend(SMALL, 1)
    assert other.purse.refuses(SMALL, 1)
    assert other.spend(Counter(SMALL.name, 9, "minute"), 1)
    host.close()
