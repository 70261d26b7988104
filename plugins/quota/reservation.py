"""What a call holds of its limits, from its admission to its end; a small machine with one way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.plugins.quota.accounts import Account, Amounts, Bounds
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.tariff import Tariff

if TYPE_CHECKING:
    from tailrace.plugins.quota.demand import Demand
    from tailrace.plugins.quota.lease import Lease
    from tailrace.plugins.quota.purse import Purse

_ERRORS: Final = 400
_BYTES_OF_TOKEN: Final = 4
"""Where nothing is known but bytes; English text has about as many."""


class Reservation:
    """Held until `settle`, which happens once; a typed fact of the call.

    `amounts` is what it takes of each of its `bounds`, at most what its `demand` says.
    """

    __slots__ = ("_purse", "_taken", "amounts", "bounds", "demand", "missing", "tariff")

    def __init__(self, purse: Purse, bounds: Bounds, demand: Demand, tariff: Tariff | None) -> None:
        self._purse = purse
        self._taken: list[tuple[Account, Lease, int]] | None = []
        self.bounds = bounds
        self.demand = demand
        self.amounts = demand.most
        self.tariff = tariff
        self.missing: Sequence[Account] = bounds.accounts
        """Of which it has nothing yet."""

    @property
    def likely_prompt(self) -> int:
        """The tokens of a prompt that no engine has counted."""
        return min(self.amounts.prompt, max(1, self.demand.prompt_bytes // _BYTES_OF_TOKEN))

    def take(self) -> bool:
        """Take what is missing from the leases in memory; False where that is not enough."""
        taken, purse, amounts = self._taken, self._purse, self.amounts
        assert taken is not None
        now = purse.now()
        missing = []
        for account in self.missing:
            amount = 1 if account.one else amounts.of(account.what, self.tariff)
            lease = purse.take(account.counter, amount, now)
            if lease is None:
                missing.append(account)
            else:
                taken.append((account, lease, amount))
        self.missing = missing
        return not missing

    def settle(self, used: Amounts | None) -> None:
        """The call is over and has used so much, None where no worker has seen it: then it takes nothing."""
        taken, self._taken = self._taken, None
        if taken is None:
            return
        purse = self._purse
        for account, lease, amount in taken:
            if used is None or account.running:
                spent = 0
            elif account.one:
                spent = 1
            else:
                spent = used.of(account.what, self.tariff)
            purse.settle(lease, amount, spent)

    @property
    def settled(self) -> bool:
        """Whether it holds nothing any more."""
        return self._taken is None

    def lower(self, amounts: Amounts) -> None:
        """Let go of what was taken so far, to try again with less."""
        assert self._taken is not None
        for _, lease, amount in self._taken:
            self._purse.settle(lease, amount, 0)
        self._taken.clear()
        self.amounts = amounts
        self.missing = self.bounds.accounts


def unstated(held: Reservation, outcome: Outcome) -> Amounts:
    """What a call counts as whose engine has not said what it used."""
    if outcome.status < _ERRORS or outcome.first_content_ns:
        written = outcome.delivered_bytes // _BYTES_OF_TOKEN
        return Amounts(held.likely_prompt, min(held.amounts.completion, written))
    if outcome.ending in (Ending.CLIENT_GONE, Ending.DEADLINE):
        # The engine was at work on it, but nobody has got anything that could be charged.
        return Amounts(held.likely_prompt, 0, requests=0)
    return Amounts(0, 0, requests=0)
