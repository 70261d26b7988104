"""What a call costs is remembered for as long as it holds, and no longer."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from tailrace.plugins.billing.clerk import Clerk
from tailrace.proxy.fault import Reject
from tailrace.proxy.prices import Prices, of_text

pytestmark = pytest.mark.interpreted

JUNE = """\
currency: EUR
prices:
  - {model: m, prompt: 1, from: 2026-06-01, until: 2026-07-01}
  - {model: m, prompt: 2, from: 2026-07-01, until: 2026-08-01}
"""
DEARER = "currency: USD\nprices:\n  - {model: m, prompt: 9}\n"


def at(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 10**9


class Counter:
    """A clerk on a clock set by hand, and a list of prices that can be replaced."""

    def __init__(self, *, free: bool = False) -> None:
        self.now = at("2026-06-30")
        self.list: Any = SimpleNamespace(prices=of_text(JUNE, "prices.yaml"))
        ring: Any = None
        self.clerk = Clerk(ring, self.list, free=free, refuses=True, now=lambda: self.now)

    def put(self, prices: Prices) -> None:
        self.list.prices = prices

    def cost(self, model: str = "m") -> tuple[str, int]:
        """The currency and what a prompt's token costs."""
        facts: list[Any] = []
        entry = SimpleNamespace(name=model, served="theirs")
        call: Any = SimpleNamespace(entry=entry, model=model, route=SimpleNamespace(local=None), provide=facts.append)
        call.fact = {}.get
        self.clerk.price(call)
        return facts[0].currency, facts[0].rates[0] // 10**9


def test_a_price_holds_until_its_last_day() -> None:
    desk = Counter()
    for day, price in (("2026-06-30", 1), ("2026-06-30", 1), ("2026-07-01", 2), ("2026-07-31", 2)):
        desk.now = at(day)
        assert desk.cost() == ("EUR", price)
    desk.now = at("2026-08-01")
    with pytest.raises(Reject):
        desk.cost()
    # A clock that is set back has to be believed too.
    desk.now = at("2026-06-15")
    assert desk.cost() == ("EUR", 1)


def test_other_prices_hold_at_once() -> None:
    desk = Counter()
    assert desk.cost() == ("EUR", 1)
    desk.put(of_text(DEARER, "prices.yaml"))
    assert desk.cost() == ("USD", 9)


def test_what_costs_nothing_costs_it_in_the_present_currency() -> None:
    desk = Counter(free=True)
    assert desk.cost("other") == ("EUR", 0)
    desk.put(of_text(DEARER, "prices.yaml"))
    assert desk.cost("other") == ("USD", 0)
