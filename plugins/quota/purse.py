"""What one process may spend without asking: its leases, kept filled before they are empty."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tailrace.plugins.quota.authority import Counter, Exhausted, Granted
from tailrace.plugins.quota.book import GRANTED, RETURNED, SPENT, Book
from tailrace.plugins.quota.windows import AT_ONCE

FRESH: Final = 0.05
"""Seconds for which a refusal is believed though it may have changed since: callers that hammer cost little."""
SCARCE: Final = 256
IDLE: Final = 0.25
"""Seconds after which what nobody spends is given back."""


class Lease:
    """One counter's lease in one window; `open` until the process gives its slot back."""

    __slots__ = ("at", "counter", "ends", "filling", "left", "low", "open", "resets", "used_at")

    def __init__(self, counter: Counter, granted: Granted) -> None:
        self.counter = counter
        self.at = granted.at
        self.open = True
        self.filling = False
        self.used_at = 0.0
        self.low = 0
        self.hear(granted)

    def hear(self, granted: Granted) -> None:
        """Take note of what the authority says of it."""
        self.ends = granted.ends
        self.resets = granted.resets
        self.left = granted.left


class Purse:
    """The open leases by their counters' names. `refill` is told of one that is half spent, `given_up` of slots that
    are free again; `exhausted` remembers refusals, so that a counter that is empty is not asked for on every call.
    """

    def __init__(
        self,
        book: Book,
        refill: Callable[[Lease], None],
        given_up: Callable[[int], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._words = book.words
        self._refill = refill
        self._given_up = given_up
        self._now = monotonic
        self._leases: dict[str, Lease] = {}
        self._exhausted: dict[str, Exhausted] = {}
        self._said_at: dict[str, float] = {}

    def take(self, counter: Counter, amount: int) -> Lease | None:
        """Spend from memory; None where the lease has not enough, or its window is over."""
        lease = self._leases.get(counter.name)
        if lease is None:
            return None
        now = self._now()
        if now >= lease.ends:
            self._end(lease)
            return None
        words, at = self._words, lease.at
        room = words[at + GRANTED] - words[at + RETURNED] - words[at + SPENT] - amount
        if room < 0:
            return None
        if room < lease.low and not lease.filling:
            lease.filling = True
            self._refill(lease)
        words[at + SPENT] += amount
        lease.used_at = now
        return lease

    def settle(self, lease: Lease, taken: int, spent: int) -> None:
        """A call that has taken something is over: correct it to what it was; nothing where the window is over."""
        if not lease.open:
            return
        words, at = self._words, lease.at
        words[at + SPENT] += spent - taken
        if lease.counter.per == AT_ONCE and lease.counter.limit < SCARCE:
            # Few run at once: another process may be waiting for this one.
            words[at + RETURNED] += taken - spent

    def hear(self, counter: Counter, answer: Granted | Exhausted) -> None:
        """What the authority says of a counter that it was asked for."""
        lease = self._leases.get(counter.name)
        if isinstance(answer, Exhausted):
            self._exhausted[counter.name] = answer
            self._said_at[counter.name] = self._now()
            if lease is not None:
                lease.filling = False
                lease.low = 0
            return
        self._exhausted.pop(counter.name, None)
        self._said_at.pop(counter.name, None)
        if lease is not None and lease.at != answer.at:
            # The authority has opened a slot for the next window.
            self._drop(lease)
            lease = None
        if lease is None:
            lease = self._leases[counter.name] = Lease(counter, answer)
        lease.hear(answer)
        lease.filling = False
        lease.used_at = self._now()
        words, at = self._words, lease.at
        lease.low = (words[at + GRANTED] - words[at + RETURNED] - words[at + SPENT]) // 2

    def refuses(self, counter: Counter, amount: int) -> bool:
        """Whether the authority need not be asked again: it has said so for good, or a moment ago."""
        said = self._exhausted.get(counter.name)
        if said is None:
            return False
        now = self._now()
        if now >= said.ends:
            self._forget(counter.name)
            return False
        if not said.frees and not said.left:
            return True
        return now - self._said_at[counter.name] < FRESH and amount > self.available(counter)

    def sweep(self) -> None:
        """Give back what lies idle, and the slots of windows that are over."""
        now = self._now()
        words = self._words
        for lease in list(self._leases.values()):
            if now >= lease.ends:
                self._end(lease)
            elif now - lease.used_at > IDLE and not lease.filling:
                at = lease.at
                idle = words[at + GRANTED] - words[at + RETURNED] - words[at + SPENT]
                if idle > 0:
                    words[at + RETURNED] += idle
                lease.low = 0
                if not words[at + SPENT]:
                    self._drop(lease)
        for name, said in list(self._exhausted.items()):
            if now >= said.ends or now - self._said_at[name] > IDLE:
                self._forget(name)

    def _forget(self, name: str) -> None:
        del self._exhausted[name]
        del self._said_at[name]

    def unheard(self, counter: Counter) -> None:
        """Nobody answered when a counter was asked for."""
        lease = self._leases.get(counter.name)
        if lease is not None:
            lease.filling = False

    def _end(self, lease: Lease) -> None:
        """Its window is over. While the authority is being asked, its slot must stay: the answer may be about it."""
        if not lease.filling:
            self._drop(lease)

    def _drop(self, lease: Lease) -> None:
        lease.open = False
        del self._leases[lease.counter.name]
        self._given_up(lease.at)

    def room(self, counter: Counter) -> int:
        """What the lease of a counter still has."""
        lease = self._leases.get(counter.name)
        if lease is None or self._now() >= lease.ends:
            return 0
        words, at = self._words, lease.at
        return max(0, words[at + GRANTED] - words[at + RETURNED] - words[at + SPENT])

    def available(self, counter: Counter) -> int:
        """What one more call could get of a counter: the lease's rest and what the authority had left."""
        said = self._exhausted.get(counter.name)
        return self.room(counter) + (0 if said is None else said.left)

    def ends(self, counter: Counter) -> float:
        """When the window ends that a counter is in, by the monotonic clock; 0 where that is not known here."""
        found = self._exhausted.get(counter.name) or self._leases.get(counter.name)
        return 0.0 if found is None else found.ends

    def remaining(self, counter: Counter) -> tuple[int, float] | None:
        """About how much is left of a counter for everybody, and when its window ends (epoch), as far as known here."""
        lease = self._leases.get(counter.name)
        if lease is None:
            said = self._exhausted.get(counter.name)
            return None if said is None else (said.left, said.resets)
        words, at = self._words, lease.at
        return max(0, lease.left + words[at + GRANTED] - words[at + RETURNED] - words[at + SPENT]), lease.resets
