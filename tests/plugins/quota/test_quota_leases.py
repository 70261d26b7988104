"""The share-out of limits, on a fake clock: never more than the limit, whoever dies; all of it, if nobody does."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest
from tailrace.plugins.quota.authority import Authority
from tailrace.plugins.quota.book import Book
from tailrace.plugins.quota.purse import FRESH, IDLE, Lease, Purse
from tailrace.plugins.quota.terms import Counter, Exhausted, Granted, Short
from tailrace.plugins.quota.windows import AT_ONCE, Clock, window_at


class Time:
    """A monotonic clock that is set by hand; the wall's is as far from it as it was at the start."""

    def __init__(self) -> None:
        self.now = 1000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: self.now + 1_700_000_000)


class Process:
    """One process: its purse, what its calls hold, and the messages that it has for the authority."""

    def __init__(self, host: Host, seat: int) -> None:
        self.host = host
        self.seat = seat
        self.book = Book.create(host.folder)
        self.purse = Purse(
            self.book, lambda lease, at: self.wanted.append((lease.counter, at)), self._close, lambda: host.time.now
        )
        self.wanted: list[tuple[Counter, int]] = []
        self.held: list[tuple[Counter, Lease, int, int]] = []
        host.authority.join(seat, self.book.path.name)

    def _close(self, at: int) -> None:
        self.host.authority.close(self.book.path.name, at)

    def spend(self, counter: Counter, amount: int) -> bool:
        """One call takes an amount, asking where its process has not enough."""
        lease = self.purse.take(counter, amount)
        if lease is None:
            if self.purse.refuses(counter, amount):
                return False
            self.ask(counter, amount)
            lease = self.purse.take(counter, amount)
        if lease is None:
            return False
        window = 0
        if counter.per != AT_ONCE:
            window = lease.resets
            moments = (self.host.time.now + 1_700_000_000 + near for near in (-0.001, 0.001))
            assert window in {window_at(counter.per, counter.zone, moment).ends for moment in moments}
        self.host.taken[counter.name, window] += amount
        self.held.append((counter, lease, amount, window))
        return True

    def ask(self, counter: Counter, need: int) -> None:
        answer = self.host.authority.lease(self.book.path.name, counter, need)
        assert not isinstance(answer, Short)
        self.purse.hear(counter, answer)

    def refill(self) -> None:
        while self.wanted:
            counter, at = self.wanted.pop()
            authority = self.host.authority
            answer = authority.lease(self.book.path.name, counter, 0, 0, authority.window(counter, at))
            assert not isinstance(answer, Short)
            self.purse.hear(counter, answer, at)

    def finish(self, number: int, spent: int) -> None:
        """One call is over; it has spent no more than it had taken."""
        counter, lease, amount, window = self.held.pop(number)
        if lease.open:
            self.host.taken[counter.name, window] += spent - amount
        self.purse.settle(lease, amount, spent)

    def die(self) -> None:
        self.book.close()
        for counter, _, amount, window in self.held:
            if counter.per == AT_ONCE:
                self.host.taken[counter.name, window] -= amount


class Host:
    """An authority and its processes; `taken` is what calls have had of each counter in each window."""

    def __init__(self, folder: Path, time: Time, seats: int = 3) -> None:
        self.folder = folder
        self.time = time
        self.taken: dict[tuple[str, int], int] = defaultdict(int)
        self.authority = Authority(folder, time.clock())
        self.processes = [Process(self, seat) for seat in range(seats)]

    def kill(self, seat: int) -> None:
        self.processes[seat].die()
        self.authority.left(seat)
        self.processes[seat] = Process(self, seat)
        self.time.now += 2 * FRESH

    def kill_authority(self) -> None:
        """The supervisor dies with its processes' consent to go on; the next one finds what is there."""
        self.authority.close_books()
        self.authority = Authority(self.folder, self.time.clock())
        for process in self.processes:
            self.authority.join(process.seat, process.book.path.name)

    def close(self) -> None:
        for process in self.processes:
            process.book.close(remove=True)
        self.authority.close_books()


REQUESTS = Counter("key:a/requests/minute", 1000, "minute")
SMALL = Counter("key:b/requests/minute", 7, "minute")
MONEY = Counter("tenant:t/money/day", 10**13, "day", "Europe/Berlin")
CALLS = Counter("key:a/concurrent_requests", 20, AT_ONCE)
WIDE = Counter("key:c/concurrent_requests", 5000, AT_ONCE)
ALL = (REQUESTS, SMALL, MONEY, CALLS, WIDE)


@pytest.mark.parametrize("seed", range(12))
def test_no_counter_is_ever_passed_whoever_dies(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    host = Host(tmp_path, Time())
    limits = {counter.name: counter.limit for counter in ALL}
    for _ in range(4000):
        process = rng.choice(host.processes)
        match rng.choices(
            ("spend", "finish", "refill", "sweep", "kill", "authority", "time"), (60, 30, 8, 4, 0.5, 0.3, 6)
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
    assert old.purse.take(REQUESTS, 1) is not None
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
