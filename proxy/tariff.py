"""What a call costs: a pure function of whole numbers, in nano-units of the currency.

Prices are for a million tokens. The sum of a call is made in millionths of a nano-unit and rounded once, at its end:
half a nano-unit and more is a whole one. So no order of additions, and no split of the tokens, changes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.proxy.outcome import Usage

MILLION: Final = 10**6

Rates = tuple[int, int, int, int]
"""Nano-units for a million tokens of prompt, of cached prompt and of completion, and for a request."""


def charge(rates: Rates, prompt: int, cached: int, completion: int, requests: int = 1) -> int:
    """The nano-units of a call; `cached` counts within `prompt`, and nonsense below zero counts as nothing."""
    prompt = max(prompt, 0)
    cached = min(max(cached, 0), prompt)
    of_prompt, of_cached, of_completion, of_request = rates
    total = (prompt - cached) * of_prompt + cached * of_cached + max(completion, 0) * of_completion
    return (total + max(requests, 0) * of_request * MILLION + MILLION // 2) // MILLION


@dataclass(frozen=True, slots=True)
class Tariff:
    """The prices that hold for one call; a typed fact of it.

    `kept` is what an answer costs that was made for another call: millionths of its price.
    """

    currency: str
    version: str
    rates: Rates
    kept: int = 0

    def of_kept(self) -> Tariff:
        """The prices of answers that were made for another call."""
        of_prompt, of_cached, of_completion, of_request = [
            (rate * self.kept + MILLION // 2) // MILLION for rate in self.rates
        ]
        return Tariff(self.currency, self.version, (of_prompt, of_cached, of_completion, of_request))

    def charge(self, usage: Usage, requests: int = 1) -> int:
        """The nano-units of a call that used so much."""
        return charge(self.rates, usage.prompt, usage.cached, usage.completion, requests)
