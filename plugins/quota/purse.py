"""What one process may spend without asking: its leases, kept filled before they are empty."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from tailrace.plugins.quota.book import GRANTED, RETURNED, SPENT, Book
from tailrace.plugins.quota.lease import Lease
from tailrace.plugins.quota.terms import Counter, Exhausted, Granted
from tailrace.plugins.quota.windows import AT_ONCE

FRESH: Final = 0.05
"""Seconds for which a refusal is believed though it may have changed since: callers that hammer cost little."""
SCARCE: Final = 256
IDLE: Final = 0.25
"""Seconds after which what nobody spends is given back."""
AHEAD: Final = 0.25
"""Seconds before the end of a window at which the next one's lease is asked for."""
_AHEADS: Final = {"second": AHEAD, "minute": 1.0}
_LONG_AHEAD: Final = 10.0
"""Many counters have the same end of the day: they are asked for one after the other."""
_MANY: Final = 50
_RECENT: Final = 10.0
"""Whoever has spent something within so many seconds will do so in the next window."""
PUT_AWAY: Final = 1.0
"""Seconds after which a slot is given up in which nothing runs: there are more keys than slots."""
_SLICE: Final = 200


class Purse:
    """The open leases by their counters' names. `refill` is told of one that is half spent, and of the window whose
    lease is wanted: 0 for its own, else the beginning of the next; `given_up` of slots that are free again. Refusals
    are remembered, so that a counter that is empty is not asked for on every call.
    """

    def __init__(
        self,
        book: Book,
        refill: Callable[[Lease, int], None],
        given_up: Callable[[int], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._words = book.words
        self._refill = refill
        self._given_up = given_up
        self._now = monotonic
        self._leases: dict[str, Lease] = {}
        self._next: dict[str, Lease] = {}
        self._ahead = 0
        # How many questions about a counter are under way: a slot that an answer may be about is not given up.
        self._asked: dict[str, int] = {}
        self._exhausted: dict[str, Exhausted] = {}
        # When that was said, and of what limit.
        self._said: dict[str, tuple[float, int]] = {}

    def now(self) -> float:
        """By the clock that windows are told by here."""
        return self._now()

    def take(self, counter: Counter, amount: int, now: float) -> Lease | None:
        """Spend from memory; None where the lease has not enough, or its window is over."""
        lease = self._leases.get(counter.name)
        if lease is None:
            return None
        if now >= lease.ends:
            lease = self._turn(lease, now)
            if lease is None:
                return None
        if counter.limit != lease.counter.limit:
            self._adapt(lease, counter)
        room = lease.granted - lease.returned - lease.spent - amount
        if room < lease.low:
            room = self._idle(lease) - amount
        if room < 0:
            return None
        if room < lease.low and not lease.filling:
            lease.filling = True
            self._refill(lease, 0)
        lease.spent += amount
        self._words[lease.at + SPENT] = lease.spent
        lease.running += 1
        lease.used_at = now
        return lease

    def settle(self, lease: Lease, taken: int, spent: int) -> None:
        """A call that has taken something is over: correct it to what it was; nothing where the window is over."""
        lease.running -= 1
        if not lease.open:
            return
        if spent != taken:
            lease.spent += spent - taken
            self._words[lease.at + SPENT] = lease.spent
        if lease.counter.per == AT_ONCE and lease.counter.limit < SCARCE:
            # Few run at once: another process may be waiting for this one.
            self._give_back(lease, taken - spent)

    def _give_back(self, lease: Lease, amount: int) -> None:
        lease.returned += amount
        self._words[lease.at + RETURNED] = lease.returned

    def asking(self, name: str) -> None:
        """A question about a counter goes out; `hear` follows, whatever comes of it."""
        self._asked[name] = self._asked.get(name, 0) + 1

    def hear(self, counter: Counter, answer: Granted | Exhausted | None, at: int = 0) -> None:
        """What the authority says of a counter that it was asked for, None where nobody has answered; `at` is the
        beginning of the window, where that was to come.
        """
        name = counter.name
        left = self._asked.get(name, 1) - 1
        if left:
            self._asked[name] = left
        else:
            self._asked.pop(name, None)
        if at:
            if isinstance(answer, Granted):
                self._hear_ahead(counter, answer, at)
            return
        lease = self._leases.get(name)
        if lease is not None:
            lease.filling = False
        if isinstance(answer, Granted):
            self._exhausted.pop(name, None)
            self._said.pop(name, None)
            self._fill(lease, counter, answer)
        elif answer is not None:
            self._exhausted[name] = answer
            self._said[name] = self._now(), counter.limit
            if lease is not None:
                lease.low = 0

    def _fill(self, lease: Lease | None, counter: Counter, answer: Granted) -> None:
        name = counter.name
        if lease is not None and lease.at != answer.at:
            if answer.resets < lease.resets:
                self._given_up(answer.at)  # of a window that is over meanwhile
                return
            # The authority has opened a slot for the next window.
            self._drop(lease)
            lease = None
        if lease is None:
            following = self._next.get(name)
            lease = self._next.pop(name) if following is not None and following.at == answer.at else None
            lease = self._leases[name] = lease or Lease(counter, answer, self._words)
        lease.hear(answer)
        lease.used_at = self._now()
        lease.low = self._idle(lease) // 2
        if lease.counter.limit < counter.limit:
            self._return(lease)  # asked for before the limit was lowered

    def _hear_ahead(self, counter: Counter, answer: Granted, at: int) -> None:
        for lease in (self._leases.get(counter.name), self._next.get(counter.name)):
            if lease is not None and lease.at == answer.at:
                lease.hear(answer)
                return
        following = self._next.pop(counter.name, None)
        if following is not None:
            self._put_away(following)
        lease = self._next[counter.name] = Lease(counter, answer, self._words)
        lease.begins = answer.ends - (answer.resets - at)
        lease.low = self._idle(lease) // 2

    def refuses(self, counter: Counter, amount: int) -> bool:
        """Whether the authority need not be asked again: it has said so for good, or a moment ago."""
        said = self._exhausted.get(counter.name)
        if said is None:
            return False
        now = self._now()
        said_at, limit = self._said[counter.name]
        if now >= said.ends or counter.limit > limit:
            self._forget(counter.name)
            return False
        if not said.frees and not said.left:
            return True
        return now - said_at < FRESH and amount > self.available(counter)

    def sweep(self) -> None:
        """Give back what lies idle and the slots of windows that are over; ask for the next ones of those in use."""
        for _ in self.sweeping():
            pass

    def sweeping(self) -> Iterator[None]:
        """The same in slices, between which others may run."""
        now = self._now()
        for name, following in list(self._next.items()):
            if now >= following.begins and name not in self._leases and name not in self._asked:
                self._begin(self._next.pop(name), now)
        self._ahead = 0
        for number, lease in enumerate(list(self._leases.values()), 1):
            if lease.open:
                self._look_at(lease, now)
            if number % _SLICE == 0:
                yield
                now = self._now()
        for name, said in list(self._exhausted.items()):
            if now >= said.ends or now - self._said[name][0] > IDLE:
                self._forget(name)

    def _look_at(self, lease: Lease, now: float) -> None:
        counter, idle_for = lease.counter, now - lease.used_at
        if now >= lease.ends:
            self._turn(lease, now)
            return
        if idle_for > IDLE and counter.name not in self._asked:
            self._return(lease)
            if not lease.running and (idle_for > PUT_AWAY or not lease.spent):
                self._drop(lease)
        ahead = _AHEADS.get(counter.per, _LONG_AHEAD)
        if now >= lease.ends - ahead and counter.name not in self._next and idle_for < _RECENT and self._ahead < _MANY:
            self._ahead += 1
            self._refill(lease, lease.resets)

    def _forget(self, name: str) -> None:
        self._exhausted.pop(name, None)
        self._said.pop(name, None)

    def _turn(self, lease: Lease, now: float) -> Lease | None:
        """The window of a lease is over: the next one's, where it is there."""
        name = lease.counter.name
        if name in self._asked:
            return None
        self._drop(lease)
        following = self._next.pop(name, None)
        return None if following is None else self._begin(following, now)

    def _begin(self, lease: Lease, now: float) -> Lease | None:
        if now >= lease.ends:
            self._put_away(lease)
            return None
        lease.used_at = now
        self._leases[lease.counter.name] = lease
        self._forget(lease.counter.name)
        return lease

    def _adapt(self, lease: Lease, counter: Counter) -> None:
        """The limit has been changed: what was lent by a higher one is given back."""
        if counter.limit < lease.counter.limit:
            self._return(lease)
        lease.counter = counter
        self._forget(counter.name)

    def _return(self, lease: Lease) -> None:
        idle = self._idle(lease)
        if idle > 0:
            self._give_back(lease, idle)
        lease.low = 0

    def _drop(self, lease: Lease) -> None:
        del self._leases[lease.counter.name]
        self._put_away(lease)

    def _put_away(self, lease: Lease) -> None:
        lease.open = False
        self._given_up(lease.at)

    def _idle(self, lease: Lease) -> int:
        lease.granted = self._words[lease.at + GRANTED]
        return lease.granted - lease.returned - lease.spent

    def room(self, counter: Counter) -> int:
        """What the lease of a counter still has."""
        lease = self._leases.get(counter.name)
        if lease is None or self._now() >= lease.ends:
            return 0
        return max(0, self._idle(lease))

    def available(self, counter: Counter) -> int:
        """What one more call could get of a counter: the lease's rest and what the authority had left."""
        said = self._exhausted.get(counter.name)
        return self.room(counter) + (0 if said is None else said.left)

    def ends(self, counter: Counter) -> float:
        """When the window ends that a counter is in, by the monotonic clock; 0 where that is not known here."""
        found = self._exhausted.get(counter.name) or self._leases.get(counter.name)
        return 0.0 if found is None else found.ends

    def remaining(self, counter: Counter) -> tuple[int, int, float] | None:
        """About how much is left of a counter for everybody, and when its window ends (epoch, monotonic), as far as
        that is known here.
        """
        lease = self._leases.get(counter.name)
        if lease is None:
            said = self._exhausted.get(counter.name)
            return None if said is None else (said.left, said.resets, said.ends)
        return max(0, lease.left + self._idle(lease)), lease.resets, lease.ends
