"""One host's share-out of every limit: processes get leases from here and spend them without asking.

For each counter and window the sum of what leases may still spend and of what closed ones have spent never passes the
limit, or, where a store divides it between hosts, this host's part of it. All of that lies in memory that outlives this
process: the next authority finds the books and the stocks, and goes on.
"""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Final

from tailrace.plugins.quota.book import BEGINS, COUNTER, GRANTED, RETURNED, SLOTS, SPENT, SUFFIX, WIDTH, Book, mark_of
from tailrace.plugins.quota.stocks import CLOSED, HELD, PASSING, SEEDED, Full, Stocks
from tailrace.plugins.quota.terms import Counter, Exhausted, Granted, Short
from tailrace.plugins.quota.windows import AT_ONCE, FOREVER, Clock, Window, window_at

log = logging.getLogger("tailrace")
_PARTS: Final = 4
_MANY_AT_ONCE: Final = 64


class Desk:
    """The book of one process, and its free slots."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.words = book.words
        used = set(book.used())
        self.free = [at for at in range((SLOTS - 1) * WIDTH, -1, -WIDTH) if at not in used]


Place = tuple[int, int]
"""A counter's mark and the beginning of a window."""


class Authority:
    """Leases to the processes of one host; `divided` says that a store gives this host its part of each limit."""

    def __init__(self, folder: Path, clock: Clock, *, divided: bool = False) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._clock = clock
        self._divided = divided
        self._stocks = Stocks(folder / "stocks", clock.now())
        self._desks: dict[str, Desk] = {}
        # A process has two while a reload lets old calls end.
        self._seats: dict[int, set[str]] = {}
        # Processes of an earlier supervisor, which finish their calls.
        self._foreign: dict[str, Desk] = {}
        self._leases: dict[Place, dict[Desk, int]] = {}
        # Where a store divides limits: what each place is called there and when it was last asked for, the latest at
        # the end; and those of which everything that could be was let go.
        self._asked: dict[Place, tuple[Counter, Window, float]] = {}
        self._resting: dict[Place, tuple[Counter, Window]] = {}
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            self._find(path)

    def _find(self, path: Path) -> None:
        try:
            desk = Desk(Book.attach(path))
        except (OSError, ValueError) as error:
            log.warning("what a process was lent cannot be read and counts as spent: %s", error)
            return
        for at in desk.book.used():
            self._leases.setdefault((desk.words[at + COUNTER], desk.words[at + BEGINS]), {})[desk] = at
        self._foreign[path.name] = desk

    def join(self, seat: int, name: str) -> None:
        """The process in a seat has made a book; raises OSError or ValueError where that is none."""
        desk = self._foreign.pop(name, None) or Desk(Book.attach(self._folder / Path(name).name))
        self._desks[name] = desk
        self._seats.setdefault(seat, set()).add(name)

    def leave(self, name: str) -> None:
        """A book is not used any more: what was not spent is free again."""
        desk = self._desks.pop(name, None)
        if desk is not None:
            self._bury(desk)

    def left(self, seat: int) -> None:
        """The process in a seat is gone."""
        for name in self._seats.pop(seat, ()):
            self.leave(name)

    def _bury(self, desk: Desk) -> None:
        for at in list(desk.book.used()):
            self._settle(desk, at)
        desk.book.close(remove=True)

    def sweep(self) -> None:
        """Forget windows that are over, and take back what processes had that an earlier supervisor left behind."""
        for name in [name for name, desk in self._foreign.items() if desk.book.abandoned()]:
            self._bury(self._foreign.pop(name))
        self._stocks.sweep(self._clock.now())

    def lease(
        self, name: str, counter: Counter, need: int, least: int | None = None, window: Window | None = None
    ) -> Granted | Exhausted | Short:
        """Let the holder of a book spend `need` more of a counter, for all the calls that wait for it there.

        Where so much is not free but `least`, what one of them needs, then all that is. Raises KeyError where nobody
        with such a book has joined.
        """
        least = need if least is None else least
        desk = self._desks[name]
        window = window or self.window(counter)
        mark = mark_of(counter.name)
        place = mark, window.begins
        entry = self._entry(mark, window, passing=counter.per == AT_ONCE)
        if self._divided:
            self._asked.pop(place, None)
            self._resting.pop(place, None)
            self._asked[place] = counter, window, self._clock.now()
        leases = self._leases.setdefault(place, {})
        bound = min(counter.limit, self._stocks.words[entry + HELD]) if self._divided else counter.limit
        free = bound - self._stocks.words[entry + CLOSED] - sum(map(self._out, leases.items()))
        ends = self._clock.monotonic_of(window.ends)
        # Whoever fills up before it is needed wants some, and nothing in particular.
        if free < least or (not need and free <= 0):
            if self._divided and bound < counter.limit:
                return Short(max(need, least) - free, max(0, least - free))
            frees = counter.per == AT_ONCE or any(self._unspent(item) for item in leases.items())
            return Exhausted(ends, window.ends, max(0, free), frees)
        size = self._size(counter, need, free)
        at = leases.get(desk)
        if at is None:
            if not desk.free:
                raise Full
            at = desk.free.pop()
            words = desk.words
            words[at + RETURNED] = words[at + SPENT] = words[at + GRANTED] = 0
            words[at + BEGINS] = window.begins
            words[at + COUNTER] = mark
            leases[desk] = at
        desk.words[at + GRANTED] += size
        return Granted(at, ends, window.ends, free - size)

    @property
    def memory(self) -> str:
        """The name of what is remembered here."""
        return self._stocks.name

    @property
    def born_ns(self) -> int:
        """When the memory of this host began, in nanoseconds since the epoch."""
        return self._stocks.born

    def unseeded(self, counter: Counter, window: Window) -> bool:
        """Whether the ledger is to say what was spent of a counter before the memory of this host began."""
        early = window.begins * 10**9 < self.born_ns
        return early and counter.remembered and not self._word(counter, window, SEEDED)

    def seed(self, counter: Counter, window: Window, amount: int) -> None:
        """Count what the ledger says."""
        entry = self._entry_of(counter, window)
        self._stocks.words[entry + CLOSED] += amount
        self._stocks.words[entry + SEEDED] = 1

    def monotonic_of(self, window: Window) -> float:
        """When a window ends, by the clock that all processes of the host share."""
        return self._clock.monotonic_of(window.ends)

    def window(self, counter: Counter, at: int = 0) -> Window:
        """The window that a counter is in, or the one that `at` lies in where that is yet to come."""
        if counter.per == AT_ONCE:
            return Window(0, FOREVER)
        return window_at(counter.per, counter.zone, max(self._clock.now(), at))

    def held(self, counter: Counter, window: Window) -> int:
        """What this host has been given of a counter in a window."""
        return self._word(counter, window, HELD)

    def hold(self, counter: Counter, window: Window, amount: int) -> None:
        """The store gives this host more of a counter."""
        self._stocks.words[self._entry_of(counter, window) + HELD] += amount

    def let_go(self, seconds: float) -> list[tuple[Counter, Window]]:
        """Hold no longer what nobody has asked for in so many seconds; of which counters, for the store to be told."""
        now = self._clock.now()
        found = []
        words = self._stocks.words
        long_ago = itertools.takewhile(lambda item: now - item[1][2] > seconds, self._asked.items())
        for place, (counter, window, _) in list(long_ago):
            del self._asked[place]
            entry = self._stocks.find(*place)
            if entry is None:
                continue
            out = sum(map(self._out, self._leases.get(place, {}).items()))
            amount = words[entry + HELD] - words[entry + CLOSED] - out
            if amount > 0:
                words[entry + HELD] -= amount
                found.append((counter, window))
            if self._leases.get(place):
                self._asked[place] = counter, window, now  # its leases may come back
            else:
                self._resting[place] = counter, window
        return found

    def asked(self) -> list[tuple[Counter, Window]]:
        """The counters that this host has asked the store for, in windows that are not over."""
        every = [*self._resting.items(), *((place, asked[:2]) for place, asked in self._asked.items())]
        for place, _ in every:
            if self._stocks.find(*place) is None:
                self._resting.pop(place, None)
        return [named for place, named in every if self._stocks.find(*place) is not None]

    def _word(self, counter: Counter, window: Window, word: int) -> int:
        return self._stocks.words[self._entry_of(counter, window) + word]

    def _entry_of(self, counter: Counter, window: Window) -> int:
        return self._entry(mark_of(counter.name), window, passing=counter.per == AT_ONCE)

    def _entry(self, mark: int, window: Window, *, passing: bool) -> int:
        entry = self._stocks.find(mark, window.begins)
        if entry is not None:
            return entry
        return self._stocks.open(mark, window.begins, window.ends, passing=passing)

    def _size(self, counter: Counter, need: int, free: int) -> int:
        """How much to lend: little enough that what lies idle elsewhere is missed by nobody."""
        processes = max(1, len(self._desks))
        if counter.per == AT_ONCE and counter.limit < _MANY_AT_ONCE * processes:
            return min(free, need)
        return min(free, max(need, free // (_PARTS * processes)))

    @staticmethod
    def _out(lease: tuple[Desk, int]) -> int:
        """What a lease may have spent, or has."""
        words, at = lease[0].words, lease[1]
        return max(words[at + GRANTED] - words[at + RETURNED], words[at + SPENT])

    @staticmethod
    def _unspent(lease: tuple[Desk, int]) -> bool:
        words, at = lease[0].words, lease[1]
        return words[at + GRANTED] - words[at + RETURNED] > words[at + SPENT]

    def close(self, name: str, at: int) -> None:
        """The holder of a book does not touch a slot any more."""
        desk = self._desks[name]
        if desk.words[at + COUNTER]:
            self._settle(desk, at)

    def _settle(self, desk: Desk, at: int) -> None:
        words = desk.words
        place = words[at + COUNTER], words[at + BEGINS]
        entry = self._stocks.find(*place)
        passing = entry is not None and bool(self._stocks.words[entry + PASSING])
        # What runs at once ends with its process; everything else stays spent until its window is over. Counted before
        # the slot is freed: whoever dies in between has counted it twice, never not at all.
        if entry is not None and not passing:
            self._stocks.words[entry + CLOSED] += words[at + SPENT]
        words[at + COUNTER] = 0
        leases = self._leases.get(place)
        if leases is not None and leases.get(desk) == at:
            del leases[desk]
            if not leases:
                del self._leases[place]
                if passing and not self._divided:
                    self._stocks.free(*place)
        desk.free.append(at)

    def close_books(self) -> None:
        """End; everything stays where it is for the next authority."""
        for desk in (*self._desks.values(), *self._foreign.values()):
            desk.book.close()
        self._stocks.close()
