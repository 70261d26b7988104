"""What a call holds of its limits, from its admission to its end; a small machine with one way out."""

from __future__ import annotations

from typing import Final

from tailrace.plugins.quota.accounts import Account, Amounts
from tailrace.plugins.quota.purse import Lease, Purse
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.tariff import Tariff

_ERRORS: Final = 400
_BYTES_OF_TOKEN: Final = 4
"""Where nothing is known but bytes; English text has about as many."""
Taken = tuple[Account, Lease, int]


class Reservation:
    """Held until `settle`, which happens once; a typed fact of the call."""

    __slots__ = ("_purse", "_taken", "amounts", "asked", "prompt_bytes", "tariff")

    def __init__(self, purse: Purse, amounts: Amounts, tariff: Tariff | None) -> None:
        self._purse = purse
        self._taken: list[Taken] | None = []
        self.amounts = amounts
        self.tariff = tariff
        self.asked: int | None = None
        self.prompt_bytes = 0

    @property
    def likely_prompt(self) -> int:
        """The tokens of a prompt that no engine has counted."""
        return min(self.amounts.prompt, max(1, self.prompt_bytes // _BYTES_OF_TOKEN))

    def take(self, account: Account) -> bool:
        """Take what the call needs of one account; False where its lease has not enough."""
        amount = 1 if account.one else self.amounts.of(account.what, self.tariff)
        lease = self._purse.take(account.counter, amount)
        if lease is None:
            return False
        assert self._taken is not None
        self._taken.append((account, lease, amount))
        return True

    def settle(self, used: Amounts | None) -> None:
        """The call is over and has used so much, None where no worker has seen it: then it takes nothing."""
        taken, self._taken = self._taken, None
        for account, lease, amount in taken or ():
            if used is None or account.running:
                spent = 0
            elif account.one:
                spent = 1
            else:
                spent = used.of(account.what, self.tariff)
            self._purse.settle(lease, amount, spent)

    def give_back(self) -> None:
        """Let go of what was taken so far, to try again with less, or not at all."""
        assert self._taken is not None
        for _, lease, amount in self._taken:
            self._purse.settle(lease, amount, 0)
        self._taken.clear()


def unstated(held: Reservation, outcome: Outcome) -> Amounts:
    """What a call counts as whose engine has not said what it used."""
    if outcome.status < _ERRORS or outcome.first_content_ns:
        written = outcome.delivered_bytes // _BYTES_OF_TOKEN
        return Amounts(held.likely_prompt, min(held.amounts.completion, written))
    if outcome.ending in (Ending.CLIENT_GONE, Ending.DEADLINE):
        # The engine was at work on it, but nobody has got anything that could be charged.
        return Amounts(held.likely_prompt, 0, requests=0)
    return Amounts(0, 0, requests=0)
