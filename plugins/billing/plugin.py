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
    from tailrace.proxy.outcome import Outcome, Usage
    from tailrace.proxy.reply import Reply

_NOBODY: Final = Identity(key="", tenant="")
_NO_ROOM: Final = "What this call costs cannot be recorded at the moment."


class Account:
    """The record of one call; `slot` is None once it is settled, or where there was no room for it."""

    __slots__ = ("entry", "opening", "slot")

    def __init__(self, entry: ModelEntry, opening: Opening, slot: int | None) -> None:
        self.entry = entry
        self.opening = opening
        self.slot = slot


_ACCOUNT: Final[Key[Account]] = Key("billing")


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
                yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def on_request(self, call: Call) -> Reply | None:
        """Find what the call costs; refuse what has no price."""
        if call.model and call.route.local is None and call.entry is not None:
            tariff = self._tariff(call.entry)
            if tariff is None:
                self.unpriced += 1
                text = f"The model '{call.model[:128]}' has no price here, so that it is not served."
                raise Reject(503, "model_unpriced", text, whose=Whose.GATEWAY, param="model")
            call.provide(tariff)
        return None

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
        tariff = call.fact(Tariff)
        if tariff is None:
            return True  # it has no model, so nothing that costs
        if _ACCOUNT not in call:
            call[_ACCOUNT] = self._opened(call, attempt.entry, tariff)
            return True
        account = call[_ACCOUNT]
        if attempt.entry is not account.entry:
            tariff = self._tariff(attempt.entry)
            if tariff is None:
                return False
            call.provide(tariff)
            account.entry = attempt.entry
            account.opening = _opening(account.opening.charge_key, call, attempt.entry, tariff)
            if account.slot is not None and self._ring is not None:
                self._ring.amend(account.slot, account.opening)
        return True

    def _opened(self, call: Call, entry: ModelEntry, tariff: Tariff) -> Account:
        ring = self._ring
        assert ring is not None
        opening = _opening(ring.mint(), call, entry, tariff)
        slot = ring.open(opening)
        if slot != FULL:
            return Account(entry, opening, slot)
        self.unrecorded += 1
        if self.config.full == "refuse":
            raise Reject(503, "billing_unavailable", _NO_ROOM, retry_after=1.0, whose=Whose.GATEWAY)
        return Account(entry, opening, None)

    def on_usage(self, call: Call, usage: Usage) -> None:
        """Set down what the client has been sent so far."""
        if _ACCOUNT not in call:
            return
        account = call[_ACCOUNT]
        if account.slot is not None and self._ring is not None:
            prompt = usage.prompt or self._ratios.prompt(call.model, call.size)
            taken = 0 if call.delivery is None else call.delivery.taken
            estimated = usage.estimated or not usage.prompt
            self._ring.running(account.slot, prompt, usage.completion, usage.cached, taken, estimated)

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
        if _ACCOUNT not in call:
            return False
        account = call[_ACCOUNT]
        slot, account.slot = account.slot, None
        if slot is None or self._ring is None:
            return False
        tariff = call.fact(Tariff)
        self._ring.settle(slot, Late(outcome.ending, _echoed(call)), settled(call, outcome, tariff, self._ratios))
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


def _echoed(call: Call) -> str:
    """The model that the engine says it is."""
    return "" if call.harvest is None else call.harvest.model
