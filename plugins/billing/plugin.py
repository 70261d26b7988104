"""The `billing` plugin in a process: a record is opened before a worker is asked, and settled before the answer ends.

Nothing here waits or touches a disk: records lie in memory that outlives the process, and the part that runs once on
the host makes them durable. See `proxy/ledger`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from tailrace.plugins.billing.clerk import Clerk
from tailrace.plugins.billing.part import part
from tailrace.plugins.billing.price_list import PriceList
from tailrace.plugins.billing.rings import ring_in
from tailrace.plugins.billing.settings import Config as _Config
from tailrace.plugins.billing.strict import Waiting
from tailrace.proxy.ledger.books import rings_in
from tailrace.proxy.plugin import Needs, Plugin
from tailrace.proxy.service_class import ServiceClass
from tailrace.proxy.tariff import MILLION, Tariff

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.ground import Places
    from tailrace.proxy.host import HostPart
    from tailrace.proxy.outcome import Outcome


class Billing(Plugin[_Config]):
    """Provides the Tariff of a call, and records what it used and what that costs."""

    Config = _Config
    needs = Needs.USAGE | Needs.RUNNING_USAGE
    provides = (Tariff,)
    heeds = (ServiceClass,)

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._clerk: Clerk | None = None
        self._list: PriceList | None = None
        self._waiting: Waiting | None = None

    def host_part(self, places: Places) -> AbstractAsyncContextManager[HostPart]:
        """The ledger of this host."""
        return part(places, self.config)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Holds the process's ring and the price list."""
        prices = self._list = PriceList(self.config.prices, speaks=self.ground.seat == 0)
        following = asyncio.ensure_future(prices.follow())
        try:
            async with ring_in(rings_in(self.ground.places), self.config.records_in_memory) as ring:
                free, refuses = self.config.unpriced == "free", self.config.full == "refuse"
                kept = round(self.config.kept_share * MILLION)
                self._clerk = Clerk(ring, prices, free=free, refuses=refuses, kept=kept)
                if self.config.durability == "strict":
                    self._waiting = Waiting(ring, self.config.strict_wait)
                try:
                    yield
                finally:
                    if self._waiting is not None:
                        self._waiting.close()
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    def on_request(self, call: Call) -> None:
        """Find what the call costs; refuse what has no price."""
        assert self._clerk is not None
        self._clerk.price(call)

    def on_chosen(self, call: Call, attempt: Attempt) -> bool:
        """Open the record before the first attempt; set down another model's price before one that goes to it."""
        return self._clerk is None or self._clerk.chosen(call, attempt)

    def on_ending(self, call: Call, outcome: Outcome, release: Callable[[], None]) -> bool:
        """Settle before the last bytes leave, and hold them until that is durable where it has to be."""
        if self._clerk is None or not self._clerk.settle(call, outcome):
            return False
        return self._waiting is not None and self._waiting.hold(call, release)

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Settle what did not end well, or was not a worker's whole answer."""
        if self._clerk is not None:
            self._clerk.settle(call, outcome)

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """What could not be billed, and answers that left before their records were durable."""
        if self._clerk is not None:
            yield "unpriced_refused_total", {}, self._clerk.unpriced
            yield "unrecorded_total", {}, self._clerk.unrecorded
        if self._list is not None:
            yield "prices_faulty", {}, self._list.faulty
        if self._waiting is not None:
            yield "strict_overdue_total", {}, self._waiting.overdue
            yield "strict_held_seconds_total", {}, self._waiting.held_seconds
