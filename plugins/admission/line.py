"""The line of one class: tenants take turns, and within a tenant whoever is due first goes first.

Turns go by virtual time: each call served moves its tenant's clock on, and the tenant whose clock is furthest behind is
next. One that comes back after a while begins at the present, so that nobody saves turns up. Whoever leaves is only
marked, and passed over when its turn comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.proxy.call import Call


_KEPT: Final = 64


class Waiter:
    """A call in line, since `since_ns`; `wake` is called when it has a place.

    It is due at `due_ns`. A place is of no use to it after `until_ns`, if that is not 0: `refuse` sends it away.
    """

    __slots__ = ("call", "due_ns", "gone", "refuse", "since_ns", "tenant", "until_ns", "wake")

    def __init__(
        self,
        call: Call,
        tenant: str,
        due_ns: int,
        since_ns: int,
        wake: Callable[[], object],
        until_ns: int = 0,
        refuse: Callable[[], object] | None = None,
    ) -> None:
        self.call = call
        self.tenant = tenant
        self.due_ns = due_ns
        self.since_ns = since_ns
        self.wake = wake
        self.until_ns = until_ns
        self.refuse = refuse
        self.gone = False


class Line:
    """Those who wait; joining and taking cost the logarithm of how many there are."""

    __slots__ = ("_arrived", "_count", "_marked", "_now", "_tenants", "_turns", "count")

    def __init__(self) -> None:
        self.count = 0
        self._tenants: dict[str, list[tuple[int, int, Waiter]]] = {}
        self._turns: list[tuple[float, int, str]] = []
        self._arrived: deque[Waiter] = deque()
        self._now = 0.0
        self._count = self._marked = 0

    def join(self, waiter: Waiter) -> None:
        """Stand in line."""
        self._count += 1
        its = self._tenants.get(waiter.tenant)
        if its is None:
            its = self._tenants[waiter.tenant] = []
            heappush(self._turns, (self._now, self._count, waiter.tenant))
        heappush(its, (waiter.due_ns, self._count, waiter))
        arrived = self._arrived
        if arrived and arrived[-1].since_ns > waiter.since_ns:
            # Back from a place that it had to give up.
            arrived.appendleft(waiter)
        else:
            arrived.append(waiter)
        self.count += 1

    def leave(self, waiter: Waiter) -> None:
        """Give up waiting; once."""
        if not waiter.gone:
            waiter.gone = True
            self.count -= 1
            self._marked += 1
            if self._marked > 2 * self.count + _KEPT:
                self._forget()

    def _forget(self) -> None:
        """Let go of those who have left: while nobody is taken, their number would have no bound."""
        self._marked = 0
        self._arrived = deque([waiter for waiter in self._arrived if not waiter.gone])
        for tenant, its in list(self._tenants.items()):
            kept = [entry for entry in its if not entry[2].gone]
            heapify(kept)
            self._tenants[tenant] = kept

    def take(self) -> Waiter | None:
        """Whoever is next, who stands in line no more."""
        turns = self._turns
        while turns:
            virtual, _, tenant = heappop(turns)
            waiter = self._first_of(tenant)
            if waiter is None:
                del self._tenants[tenant]
                continue
            self._now = virtual
            self._count += 1
            heappush(turns, (virtual + 1.0, self._count, tenant))
            self.leave(waiter)
            return waiter
        return None

    def _first_of(self, tenant: str) -> Waiter | None:
        its = self._tenants[tenant]
        while its:
            _, _, waiter = heappop(its)
            if not waiter.gone:
                return waiter
        return None

    def ahead_of(self, tenant: str, due_ns: int) -> int:
        """How many go before a call that would join now."""
        if not self.count:
            return 0
        own = self._tenants.get(tenant, [])
        ahead = before = sum([not waiter.gone for due, _, waiter in own if due <= due_ns])
        start, number = self._now, self._count + 1
        for virtual, since, name in self._turns:
            if name == tenant:
                start, number = virtual, since
        for virtual, since, name in self._turns:
            if name != tenant:
                rounds = int(start + before - virtual)
                if rounds >= 0 and (-virtual, since) < (-start, number):
                    rounds += 1
                if rounds > 0:
                    ahead += min(rounds, sum([not waiter.gone for _, _, waiter in self._tenants[name]]))
        return ahead

    def order(self) -> list[Waiter]:
        """Who waits, in the order in which they go if nobody else comes."""
        # At the same turn those are first who had none before it, and then whoever was before the other the last time.
        turns: list[tuple[float, float, int, Waiter]] = []
        for virtual, since, tenant in self._turns:
            its = sorted([entry for entry in self._tenants[tenant] if not entry[2].gone])
            for later, entry in enumerate(its):
                turns.append((virtual + later, -virtual, since, entry[2]))
        turns.sort()
        return [turn[3] for turn in turns]

    def oldest(self) -> Waiter | None:
        """Whoever has waited longest, and goes on to."""
        arrived = self._arrived
        while arrived:
            if not arrived[0].gone:
                return arrived[0]
            arrived.popleft()
        return None
