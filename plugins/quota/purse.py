"""What one process may spend without asking: its leases, kept filled before they are empty."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tailrace.plugins.quota.authority import Counter, Exhausted, Granted
from tailrace.plugins.quota.book import GRANTED, RETURNED, SPENT, Book

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
        if room < lease.low and not lease.filling:
            lease.filling = True
            self._refill(lease)
        if room < 0:
            return None
        words[at + SPENT] += amount
        lease.used_at = now
        return lease

    def settle(self, lease: Lease, taken: int, spent: int) -> None:
        """A call that has taken something is over: correct it to what it was; nothing where the window is over."""
        if lease.open:
            self._words[lease.at + SPENT] += spent - taken

    def hear(self, counter: Counter, answer: Granted | Exhausted) -> None:
        """What the authority says of a counter that it was asked for."""
        lease = self._leases.get(counter.name)
        if isinstance(answer, Exhausted):
            self._exhausted[counter.name] = answer
            if lease is not None:
                lease.filling = False
                lease.low = 0
            return
        self._exhausted.pop(counter.name, None)
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

    def refusal(self, counter: Counter) -> Exhausted | None:
        """The last word on a counter, where it still holds and nothing that runs can make room."""
        said = self._exhausted.get(counter.name)
        if said is None:
            return None
        if said.frees or self._now() >= said.ends:
            del self._exhausted[counter.name]
            return None
        return said

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
            if now >= said.ends:
                del self._exhausted[name]

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

    def remaining(self, counter: Counter) -> tuple[int, float] | None:
        """About how much is left of a counter for everybody, and when its window ends (epoch), as far as known here."""
        lease = self._leases.get(counter.name)
        if lease is None:
            said = self._exhausted.get(counter.name)
            return None if said is None else (said.left, said.resets)
        words, at = self._words, lease.at
        return max(0, lease.left + words[at + GRANTED] - words[at + RETURNED] - words[at + SPENT]), lease.resets
