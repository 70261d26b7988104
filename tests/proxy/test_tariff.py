"""What calls cost: whole numbers in, whole numbers out, rounded once."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailrace.proxy.outcome import Usage
from tailrace.proxy.tariff import Tariff, charge

rates = st.tuples(*[st.integers(0, 10**13)] * 4)
tokens = st.integers(0, 10**9)


def exactly(of: tuple[int, int, int, int], prompt: int, cached: int, completion: int, requests: int) -> Fraction:
    return Fraction(of[0] * (prompt - cached) + of[1] * cached + of[2] * completion, 10**6) + of[3] * requests


@given(rates, tokens, tokens, tokens, st.integers(0, 1000))
def test_a_charge_is_the_exact_price_rounded_half_up(
    of: tuple[int, int, int, int], prompt: int, cached: int, completion: int, requests: int
) -> None:
    cached = min(cached, prompt)
    found = charge(of, prompt, cached, completion, requests)
    true = exactly(of, prompt, cached, completion, requests)
    assert isinstance(found, int)
    assert -Fraction(1, 2) < found - true <= Fraction(1, 2)


@given(rates, tokens, tokens, tokens)
def test_more_tokens_never_cost_less(of: tuple[int, int, int, int], prompt: int, completion: int, more: int) -> None:
    before = charge(of, prompt, 0, completion)
    assert charge(of, prompt + more, 0, completion) >= before
    assert charge(of, prompt, 0, completion + more) >= before


@pytest.mark.parametrize(
    ("of", "usage", "cost"),
    [
        ((1, 0, 0, 0), (499_999, 0, 0), 0),
        ((1, 0, 0, 0), (500_000, 0, 0), 1),
        ((1, 1, 1, 0), (250_000, 0, 250_000), 1),
        ((500_000_000, 50_000_000, 1_500_000_000, 0), (1000, 400, 200), 600 * 500 + 400 * 50 + 200 * 1500),
        ((0, 0, 0, 7), (5, 5, 5), 7),
    ],
)
def test_known_charges(of: tuple[int, int, int, int], usage: tuple[int, int, int], cost: int) -> None:
    prompt, cached, completion = usage
    assert Tariff("EUR", "p", of).charge(Usage(prompt, completion, cached)) == cost


def test_nonsense_of_an_engine_costs_nothing_more() -> None:
    of = (1_000_000, 0, 1_000_000, 0)
    assert charge(of, -5, 0, -5) == 0
    assert charge(of, 10, 50, 0) == 0
    assert charge(of, 10, -50, 0) == 10
