"""The `billing` plugin in a process: a record is opened before a worker is asked, and settled before the answer ends.

Nothing here waits or touches a disk: records lie in memory that outlives the process, and the part that runs once on
the host makes them durable. See `proxy/ledger`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from tailrace.plugins.billing.bill import settled
from tailrace.plugins.billing.part import part
from tailrace.plugins.billing.price_list import PriceList
from tailrace.plugins.billing.ratios import Ratios
from tailrace.plugins.billing.rings import ring_in
from tailrace.plugins.billing.settings import Config as _Config
from tailrace.plugins.billing.strict import Waiting
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.identity import Identity
from tailrace.proxy.ledger.account import CLOSED, Account
from tailrace.proxy.ledger.books import rings_in
from tailrace.proxy.ledger.record import Late, Opening
from tailrace.proxy.ledger.ring import FULL, Ring
from tailrace.proxy.plugin import Key, Needs, Plugin
from tailrace.proxy.tariff import Tariff

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import ModelEntry
    from tailrace.proxy.ground import Places
    from tailrace.proxy.host import HostPart
    from tailrace.proxy.outcome import Outcome

_NOBODY: Final = Identity(key="", tenant="")
_NO_ROOM: Final = "What this call costs cannot be recorded at the moment."


class Bill:
    """What is on record of one call, and for which entry it was opened."""

    __slots__ = ("account", "charge_key", "entry", "tariff")

    def __init__(self, account: Account, charge_key: str, entry: ModelEntry, tariff: Tariff) -> None:
        self.account = account
        self.charge_key = charge_key
        self.entry = entry
        self.tariff = tariff


_BILL: Final[Key[Bill]] = Key("billing")


class Billing(Plugin[_Config]):
    """Provides the Tariff of a call, and records what it used and what that costs."""

    Config = _Config
    needs = Needs.USAGE | Needs.RUNNING_USAGE
    provides = (Tariff,)

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._list: PriceList | None = None
        self._ring: Ring | None = None
        self._waiting: Waiting | None = None
        self._ratios = Ratios()
        self.unpriced = self.unrecorded = 0

    def host_part(self, places: Places) -> AbstractAsyncContextManager[HostPart]:
        """The ledger of this host."""
        return part(places, self.config)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Holds the process's ring and the price list."""
        self._list = PriceList(self.config.prices, speaks=self.ground.seat == 0)
        following = asyncio.ensure_future(self._list.follow())
        try:
            with ring_in(rings_in(self.ground.places)) as ring:
                self._ring = ring
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
        entry = call.entry
        if entry is not None and call.model and call.route.local is None:
            tariff = self._tariff(entry)
            if tariff is None:
                self.unpriced += 1
                text = f"The model '{call.model[:128]}' has no price here, so that it is not served."
                raise Reject(503, "model_unpriced", text, whose=Whose.GATEWAY, param="model")
            call.provide(tariff)

    def _tariff(self, entry: ModelEntry) -> Tariff | None:
        """The prices of an entry by its own name, else by its workers'; None where it must not be served."""
        assert self._list is not None
        prices, now = self._list.prices, time.time_ns()
        found = prices.tariff(entry.name, "", now)
        if found is None and entry.served != entry.name:
            found = prices.tariff(entry.served, "", now)
        if found is None and self.config.unpriced == "free":
            return Tariff(prices.currency, "", (0, 0, 0, 0))
        return found

    def on_chosen(self, call: Call, attempt: Attempt) -> bool:
        """Open the record before the first attempt; set down another model's price before one that goes to it."""
        if _BILL in call:
            bill = call[_BILL]
            return attempt.entry is bill.entry or self._changed(call, bill, attempt.entry)
        tariff = call.fact(Tariff)
        if tariff is not None:  # without a model there is nothing that costs
            call[_BILL] = self._opened(call, attempt.entry, tariff)
        return True

    def _changed(self, call: Call, bill: Bill, entry: ModelEntry) -> bool:
        """Go on with another entry, if that has a price; never beside an attempt at the present one's."""
        if any(attempt.end is None for attempt in call.tries):
            return False
        tariff = self._tariff(entry)
        if tariff is None:
            return False
        call.provide(tariff)
        bill.entry, bill.tariff = entry, tariff
        if bill.account.slot >= 0 and self._ring is not None:
            self._ring.amend(bill.account.slot, _opening(bill.charge_key, call, entry, tariff))
        return True

    def _opened(self, call: Call, entry: ModelEntry, tariff: Tariff) -> Bill:
        ring = self._ring
        assert ring is not None
        charge_key = ring.mint()
        slot = ring.open(_opening(charge_key, call, entry, tariff))
        if slot == FULL:
            self.unrecorded += 1
            if self.config.full == "refuse":
                raise Reject(503, "billing_unavailable", _NO_ROOM, retry_after=1.0, whose=Whose.GATEWAY)
            return Bill(Account(ring, CLOSED, 0), charge_key, entry, tariff)
        account = Account(ring, slot, self._ratios.prompt(call.model, call.size) if call.stream else 0)
        if call.harvest is not None and call.stream:
            call.harvest.follow(account.note)
        return Bill(account, charge_key, entry, tariff)

    def on_ending(self, call: Call, outcome: Outcome, release: Callable[[], None]) -> bool:
        """Settle before the last bytes leave, and hold them until that is durable where it has to be."""
        if not self._settle(call, outcome):
            return False
        return self._waiting is not None and self._waiting.hold(call, release)

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Settle what did not end well, or was not a worker's whole answer."""
        self._settle(call, outcome)

    def _settle(self, call: Call, outcome: Outcome) -> bool:
        """Whether this was the moment at which the call's record was settled."""
        if _BILL not in call:
            return False
        bill = call[_BILL]
        account = bill.account
        slot = account.slot
        if slot < 0 or self._ring is None:
            return False
        account.slot = CLOSED
        model = "" if call.harvest is None else call.harvest.model
        self._ring.settle(slot, Late(outcome.ending, model), settled(call, outcome, bill.tariff, self._ratios))
        return True

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """What could not be billed, and answers that left before their records were durable."""
        yield "unpriced_refused_total", {}, self.unpriced
        yield "unrecorded_total", {}, self.unrecorded
        if self._list is not None:
            yield "prices_faulty", {}, self._list.faulty
        if self._waiting is not None:
            yield "strict_overdue_total", {}, self._waiting.overdue
            yield "strict_held_seconds_total", {}, self._waiting.held_seconds


def _opening(charge_key: str, call: Call, entry: ModelEntry, tariff: Tariff) -> Opening:
    identity = call.fact(Identity) or _NOBODY
    return Opening(
        charge_key,
        call.id,
        identity.tenant,
        identity.key,
        identity.tags,
        call.model,
        entry.served,
        "",
        call.route.name,
        tariff.currency,
        tariff.version,
        tariff.rates if tariff.version else None,
    )
