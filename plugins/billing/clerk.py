"""The quick side of `billing`: what a call costs, its record's beginning before a worker is asked, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tailrace.plugins.billing.bill import settled, settled_kept
from tailrace.plugins.billing.ratios import Ratios
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.identity import Identity
from tailrace.proxy.ledger.account import CLOSED, Account
from tailrace.proxy.ledger.layout import WORDS_ROOM
from tailrace.proxy.ledger.record import Late, Opening
from tailrace.proxy.ledger.ring import FULL, Ring, late_text, opening_text
from tailrace.proxy.outcome import Ending, Usage
from tailrace.proxy.plugin import Key
from tailrace.proxy.service_class import ServiceClass
from tailrace.proxy.stored.sources import SECOND_HAND
from tailrace.proxy.tariff import Tariff

if TYPE_CHECKING:
    from tailrace.plugins.billing.price_list import PriceList
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import ModelEntry
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.prices import Prices

_NOBODY: Final = Identity(key="", tenant="")
_NO_ROOM: Final = "What this call costs cannot be recorded at the moment."
_HEAD: Final = b'["","",'
"""How a record's beginning begins whose charge key and call are left empty."""
_ROOMY: Final = WORDS_ROOM - 128
"""With this much left, the two fit in."""
_REMEMBERED: Final = 4096


class Bill:
    """What is on record of one call, and for which entry it was opened."""

    __slots__ = ("account", "charge_key", "entry", "tariff")

    def __init__(self, account: Account, charge_key: str, entry: ModelEntry, tariff: Tariff) -> None:
        self.account = account
        self.charge_key = charge_key
        self.entry = entry
        self.tariff = tariff


_BILL: Final[Key[Bill]] = Key("billing")


class Terms:
    """What a record begins with that many calls have in common; it holds what it was made of, whose places name it."""

    __slots__ = ("entry", "identity", "tail", "tariff")

    def __init__(self, identity: Identity, entry: ModelEntry, tariff: Tariff, tail: bytes) -> None:
        self.identity = identity
        self.entry = entry
        self.tariff = tariff
        self.tail = tail


class Clerk:
    """Opens and settles the records of one process; `unpriced` and `unrecorded` count what could not be billed."""

    def __init__(
        self,
        ring: Ring,
        prices: PriceList,
        *,
        free: bool,
        refuses: bool,
        kept: int = 0,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self._now = now
        self._ring = ring
        self._list = prices
        self._is_free = free
        self._kept = kept
        # What was found holds from `_since` to before `_until`, as long as the prices are the same.
        self._prices: Prices | None = None
        self._since = self._until = 0
        self._tariffs: dict[tuple[str, str, str], Tariff | None] = {}
        self._refuses = refuses
        self._ratios = Ratios()
        self._terms: dict[tuple[int, int, int, str, str, str], Terms] = {}
        self._ends: dict[tuple[str, str], bytes] = {}
        self.unpriced = 0
        self.unrecorded = 0

    def price(self, call: Call) -> None:
        """Find what the call costs; refuse what has no price."""
        entry = call.entry
        if entry is not None and call.model and call.route.local is None:
            tariff = self._tariff(entry, _class_of(call))
            if tariff is None:
                self.unpriced += 1
                text = f"The model '{call.model[:128]}' has no price here, so that it is not served."
                raise Reject(503, "model_unpriced", text, whose=Whose.GATEWAY, param="model")
            call.provide(tariff)

    def _tariff(self, entry: ModelEntry, service_class: str) -> Tariff | None:
        """The prices of an entry by its own name, else by its workers'; None where it must not be served."""
        prices, now = self._list.prices, self._now()
        if prices is not self._prices or not self._since <= now < self._until:
            self._prices, self._since, self._until = prices, now, prices.steady_until(now)
            self._tariffs.clear()
        which = entry.name, entry.served, service_class
        if which in self._tariffs:
            return self._tariffs[which]
        if len(self._tariffs) >= _REMEMBERED:
            self._tariffs.clear()
        found = prices.tariff(entry.name, service_class, now)
        if found is None and entry.served != entry.name:
            found = prices.tariff(entry.served, service_class, now)
        if found is None and self._is_free:
            found = Tariff(prices.currency, "", (0, 0, 0, 0))
        if found is not None and self._kept:
            found = replace(found, kept=self._kept)
        self._tariffs[which] = found
        return found

    def chosen(self, call: Call, attempt: Attempt) -> bool:
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
        tariff = self._tariff(entry, _class_of(call))
        if tariff is None:
            return False
        call.provide(tariff)
        bill.entry, bill.tariff = entry, tariff
        if bill.account.slot >= 0:
            self._ring.amend(bill.account.slot, _opening(bill.charge_key, call, entry, tariff))
        return True

    def _opened(self, call: Call, entry: ModelEntry, tariff: Tariff) -> Bill:
        ring = self._ring
        charge_key = ring.mint()
        slot = ring.open_as(self._beginning(charge_key, call, entry, tariff))
        if slot == FULL:
            self.unrecorded += 1
            if self._refuses:
                raise Reject(503, "billing_unavailable", _NO_ROOM, retry_after=1.0, whose=Whose.GATEWAY)
            return Bill(Account(ring, CLOSED, 0), charge_key, entry, tariff)
        account = Account(ring, slot, self._ratios.prompt(call.model, call.size) if call.stream else 0)
        if call.harvest is not None and call.stream:
            call.harvest.follow(account.note)
        return Bill(account, charge_key, entry, tariff)

    def _beginning(self, charge_key: str, call: Call, entry: ModelEntry, tariff: Tariff) -> bytes:
        """The text of the opening: what many calls have in common is put into words once."""
        identity = call.fact(Identity) or _NOBODY
        which = (id(identity), id(entry), id(tariff), call.route.name, call.model, _class_of(call))
        terms = self._terms.get(which)
        if terms is None:
            if len(self._terms) >= _REMEMBERED:
                self._terms.clear()
            common = opening_text(_opening("", call, entry, tariff, call_id=""))
            tail = common[len(_HEAD) :] if common.startswith(_HEAD) and len(common) < _ROOMY else b""
            terms = self._terms[which] = Terms(identity, entry, tariff, tail)
        if not terms.tail:
            return opening_text(_opening(charge_key, call, entry, tariff))
        # Both are the gateway's own, and have nothing that JSON escapes.
        return b'["%b","%b",%b' % (charge_key.encode(), call.id.encode(), terms.tail)

    def settle(self, call: Call, outcome: Outcome) -> bool:
        """End the call's record, unless that is done; whether this was the moment."""
        if _BILL not in call:
            if self._kept and call.source in SECOND_HAND and _had_some(outcome):
                self._settle_kept(call, outcome)
            return False
        bill = call[_BILL]
        account = bill.account
        slot = account.slot
        if slot < 0:
            return False
        account.slot = CLOSED
        which = (outcome.ending, "" if call.harvest is None else call.harvest.model)
        text = self._ends.get(which)
        if text is None:
            if len(self._ends) >= _REMEMBERED:
                self._ends.clear()
            text = self._ends[which] = late_text(Late(*which))
        self._ring.settle_as(slot, text, settled(call, outcome, bill.tariff, self._ratios))
        return True

    def _settle_kept(self, call: Call, outcome: Outcome) -> None:
        """Record an answer that was made for another call, at its share of the price."""
        entry, tariff = call.entry, call.fact(Tariff)
        if entry is None or tariff is None:
            return
        tariff = tariff.of_kept()
        slot = self._ring.open_as(opening_text(_opening(self._ring.mint(), call, entry, tariff)))
        if slot == FULL:
            self.unrecorded += 1
            return
        numbers = settled_kept(outcome, outcome.usage or Usage(), tariff)
        self._ring.settle_as(slot, late_text(Late(outcome.ending, "")), numbers)


def _class_of(call: Call) -> str:
    fact = call.fact(ServiceClass)
    return "" if fact is None else fact.name


def _had_some(outcome: Outcome) -> bool:
    """Whether a client got an answer that was made for another call, be it only its beginning."""
    return outcome.ending is Ending.COMPLETED or outcome.usage is not None


def _opening(charge_key: str, call: Call, entry: ModelEntry, tariff: Tariff, call_id: str | None = None) -> Opening:
    identity = call.fact(Identity) or _NOBODY
    return Opening(
        charge_key,
        call.id if call_id is None else call_id,
        identity.tenant,
        identity.key,
        identity.tags,
        call.model,
        entry.served,
        _class_of(call),
        call.route.name,
        tariff.currency,
        tariff.version,
        tariff.rates if tariff.version else None,
    )
