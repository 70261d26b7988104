"""The share-out of limits, on a fake clock: never more than the limit, whoever dies; all of it, if nobody does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hosts import ALL, CALLS, MONEY, REQUESTS, SMALL, Host, Process, Time
from tailrace.plugins.quota.authority import Authority
from tailrace.plugins.quota.book import SLOTS, Book
from tailrace.plugins.quota.purse import FRESH, IDLE, PUT_AWAY
from tailrace.plugins.quota.stocks import Full
from tailrace.plugins.quota.terms import Counter, Exhausted, Granted, Short
from tailrace.plugins.quota.windows import AT_ONCE


@pytest.mark.parametrize("seed", range(12))
def test_no_counter_is_ever_passed_whoever_dies(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    host = Host(tmp_path, Time())
    limits = {counter.name: counter.limit for counter in ALL}
    for _ in range(4000):
        process = rng.choice(host.processes)
        match rng.choices(
            ("spend", "finish", "refill", "sweep", "kill", "authority", "time", "edge"),
            (60, 30, 8, 6, 0.5, 0.3, 6, 3),
        )[0]:
            case "spend":
                counter = rng.choice(ALL)
                process.spend(
                    counter, rng.randint(1, counter.limit // 40) if counter is MONEY else rng.choice((1, 1, 2))
                )
            case "finish" if process.held:
                number = rng.randrange(len(process.held))
                counter, _, amount, _ = process.held[number]
                process.finish(number, 0 if counter.per == AT_ONCE else rng.randint(0, amount))
            case "refill":
                process.refill()
            case "sweep":
                process.purse.sweep()
                host.authority.sweep()
            case "kill":
                host.kill(process.seat)
            case "authority":
                host.kill_authority()
            case "time":
                host.time.now += rng.choice((0.01, 0.3, 2.0, 31.0))
            case "edge":
                host.time.now = host.to_the_edge() - rng.choice((0.2, 0.1, 0.001, -0.001))
        for (name, _), taken in host.taken.items():
            assert taken <= limits[name]
    assert max(taken for (name, _), taken in host.taken.items() if name == MONEY.name) > 0
    host.close()


@pytest.mark.parametrize("counter", [REQUESTS, SMALL, Counter("x", 997, "day"), Counter("y", 1, "second")])
@pytest.mark.parametrize("seats", [1, 2, 5])
def test_all_of_a_limit_can_be_spent_and_not_one_more(tmp_path: Path, counter: Counter, seats: int) -> None:
    host = Host(tmp_path, Time(), seats)
    admitted = sum(host.processes[call % seats].spend(counter, 1) for call in range(counter.limit * 5))
    assert admitted == counter.limit
    host.time.now += 86_400
    assert host.processes[0].spend(counter, 1)
    host.close()


def test_what_lies_idle_in_one_process_is_missed_by_no_other(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 2)
    one, other = host.processes
    assert one.spend(REQUESTS, 1)
    host.time.now += IDLE + 0.1
    one.purse.sweep()
    assert sum(other.spend(REQUESTS, 1) for _ in range(2000)) == 999
    host.close()


def test_a_killed_process_gives_back_what_it_had_not_spent(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 2)
    assert sum(host.processes[0].spend(REQUESTS, 1) for _ in range(10)) == 10
    host.kill(0)
    assert sum(host.processes[call % 2].spend(REQUESTS, 1) for call in range(3000)) == 990
    host.close()


def test_what_ran_in_a_killed_process_makes_room(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 2)
    assert sum(host.processes[0].spend(CALLS, 1) for _ in range(30)) == 20
    assert not host.processes[1].spend(CALLS, 1)
    host.kill(0)
    assert sum(host.processes[1].spend(CALLS, 1) for _ in range(30)) == 20
    host.close()


def test_processes_that_outlive_their_supervisor_go_on_and_give_back_at_their_end(tmp_path: Path) -> None:
    time = Time()
    host = Host(tmp_path, time, 1)
    old = host.processes[0]
    assert old.spend(REQUESTS, 1)
    host.authority.close_books()
    host.authority = Authority(tmp_path, time.clock())
    assert old.purse.take(REQUESTS, 1, old.purse.now()) is not None
    new = Process(host, 0)
    host.processes = [new]
    lent = 1000 - sum(new.spend(REQUESTS, 1) for _ in range(2000))
    assert 2 < lent < 1000
    old.book.close()
    host.authority.sweep()
    time.now += 2 * FRESH
    assert sum(new.spend(REQUESTS, 1) for _ in range(2000)) == lent - 2
    host.close()


def test_a_limit_lowered_and_raised_while_it_is_in_use(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 1)
    process = host.processes[0]
    assert sum(process.spend(SMALL, 1) for _ in range(9)) == 7
    assert process.purse.refuses(SMALL, 1)
    raised = Counter(SMALL.name, 12, "minute")
    assert isinstance(host.authority.lease(process.book.path.name, raised, 1), Granted)
    lowered = Counter(SMALL.name, 3, "minute")
    assert isinstance(host.authority.lease(process.book.path.name, lowered, 1), Exhausted)
    host.close()


def test_who_fills_up_asks_the_store_before_a_call_has_to(tmp_path: Path) -> None:
    time = Time()
    authority = Authority(tmp_path, time.clock(), divided=True)
    book = Book.create(tmp_path)
    authority.join(0, book.path.name)
    window = authority.window(REQUESTS)
    assert isinstance(authority.lease(book.path.name, REQUESTS, 1), Short)
    authority.hold(REQUESTS, window, 10)
    assert isinstance(authority.lease(book.path.name, REQUESTS, 10), Granted)
    assert isinstance(authority.lease(book.path.name, REQUESTS, 0, 0), Short)
    authority.hold(REQUESTS, window, 990)
    assert isinstance(authority.lease(book.path.name, REQUESTS, 0, 0), Granted)
    book.close(remove=True)
    authority.close_books()


def test_more_keys_than_slots_are_counted_one_after_the_other(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 1)
    [process] = host.processes
    counters = [Counter(f"key:{number}/requests/day/UTC", 2, "day") for number in range(SLOTS + 2000)]
    for expected in (True, True, False):
        for number, counter in enumerate(counters):
            assert process.spend(counter, 1) is expected
            while process.held:
                process.finish(0, 1)
            if number % 4000 == 0:
                host.time.now += PUT_AWAY + 0.1
                process.purse.sweep()
    assert set(host.taken.values()) == {2}
    host.close()


def test_a_process_without_a_free_slot_is_told_so(tmp_path: Path) -> None:
    host = Host(tmp_path, Time(), 1)
    [process] = host.processes
    for number in range(SLOTS):
        assert process.spend(Counter(f"key:{number}", 2, "day"), 1)
    with pytest.raises(Full):
        process.spend(Counter("one more", 2, "day"), 1)
    host.close()
