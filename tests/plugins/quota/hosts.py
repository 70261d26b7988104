"""An authority and its processes on a fake clock, and what their calls have had of each counter."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tailrace.plugins.quota.authority import Authority
from tailrace.plugins.quota.book import Book
from tailrace.plugins.quota.lease import Lease
from tailrace.plugins.quota.purse import FRESH, Purse
from tailrace.plugins.quota.terms import Counter, Short
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
        lease = self.purse.take(counter, amount, self.purse.now())
        if lease is None:
            if self.purse.refuses(counter, amount):
                return False
            self.ask(counter, amount)
            lease = self.purse.take(counter, amount, self.purse.now())
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

    def to_the_edge(self) -> float:
        """When the minute ends, by the monotonic clock."""
        return self.time.now + 60 - (self.time.now + 1_700_000_000) % 60

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
