"""The quick side of `quota`: what is decided in memory when a call comes, and what is settled when it ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tailrace.plugins.quota.accounts import Accounts, Amounts, KeptAmounts
from tailrace.plugins.quota.answers import headers_of
from tailrace.plugins.quota.demand import UNCOUNTED, demand_of
from tailrace.plugins.quota.estimates import Estimates
from tailrace.plugins.quota.reservation import Reservation, unstated
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.identity import Identity
from tailrace.proxy.outcome import Ending
from tailrace.proxy.stored.sources import SECOND_HAND
from tailrace.proxy.tariff import Tariff

if TYPE_CHECKING:
    from tailrace.plugins.quota.purse import Purse
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head
    from tailrace.proxy.limit import Limit
    from tailrace.proxy.outcome import Outcome

_UNPRICED: Final = "This caller has a budget in money, and no plugin before `quota` says what calls cost."


class Desk:
    """Everything that is done for each call and needs no waiting; `general` are the limits that hold for everybody."""

    def __init__(self, general: Iterable[Limit], unbounded: int) -> None:
        self._accounts = Accounts(general)
        self._estimates = Estimates()
        self._unbounded = unbounded
        self.admitted = 0

    def reserve(self, call: Call, purse: Purse) -> Reservation | None:
        """What the call needs of every limit, with what leases are `missing` for it; None where nothing limits it."""
        bounds = self._accounts.of(call.fact(Identity), call.model)
        if not bounds.accounts or call.route.local is not None:
            return None
        tariff, demand = None, UNCOUNTED
        if bounds.counted:
            tariff = call.fact(Tariff)
            if tariff is None and bounds.money:
                raise Reject(503, "quota_unavailable", _UNPRICED, whose=Whose.GATEWAY)
            demand = demand_of(call, self._estimates.of(call.model), self._unbounded)
        held = Reservation(purse, bounds, demand, tariff)
        call.provide(held)
        if held.take():
            self.admit(call, held)
        return held

    def admit(self, call: Call, held: Reservation) -> None:
        """Let a call go on that has all it needs."""
        if held.demand.unnamed:
            held.demand.bound(call, held.amounts.completion)
        self.admitted += 1

    def tell(self, call: Call, head: Head, purse: Purse) -> None:
        """Say in an answer what is left."""
        held = call.fact(Reservation)
        if held is not None and held.bounds.shown:
            head.set_all(headers_of(held.bounds.shown, purse, anthropic=call.route.anthropic))

    def settle(self, call: Call, outcome: Outcome) -> None:
        """The call is over: correct what it took to what it was, and learn from it."""
        held = call.fact(Reservation)
        if held is None or held.settled:
            return
        if not call.source and not any(attempt.sent_ns for attempt in call.tries):
            held.settle(None)
            return
        # Another model may have been asked in the end, at another price.
        held.tariff = call.fact(Tariff) or held.tariff
        usage = outcome.usage
        if call.source in SECOND_HAND:
            share = 0 if held.tariff is None else held.tariff.kept
            used = Amounts(0, 0, requests=int(outcome.ending is Ending.COMPLETED))
            if usage is not None:
                used = Amounts(usage.prompt, usage.completion, usage.cached)
            held.settle(KeptAmounts(used, share))
            return
        if usage is None:
            held.settle(unstated(held, outcome))
            return
        prompt = usage.prompt or (held.likely_prompt if usage.estimated else 0)
        held.settle(Amounts(prompt, usage.completion, usage.cached))
        demand = held.demand
        if demand.prompt_bytes and not usage.estimated:
            learned = self._estimates.of(call.model)
            learned.note(demand.prompt_bytes, usage.prompt, demand.asked, usage.completion)
