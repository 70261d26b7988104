"""When places come free, by calls whose times the test sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailrace.proxy.outlook import KNOWN, Outlook


def of(*took: float, upto: float = 100.0, apart: float = 0.01) -> Outlook:
    """Calls that took so long, the last of which has ended at `upto`."""
    outlook = Outlook()
    for number, each in enumerate(took):
        outlook.ended(each, upto - (len(took) - 1 - number) * apart)
    return outlook


def test_nothing_is_known_before_some_have_ended():
    assert not of(*[1.0] * (KNOWN - 1)).known
    assert of(*[1.0] * KNOWN).known


def test_calls_that_take_the_same_time_are_foreseen():
    outlook = of(*[10.0] * 20)
    outlook.look([91.0, 93.0, 95.0], 100.0)
    for seconds, expected in ((0.5, 0), (1.5, 1), (2.5, 1), (3.5, 2), (5.5, 3), (10.5, 3), (11.8, 4), (13.8, 5)):
        assert outlook.places(seconds, 100.0, 3.0) == pytest.approx(expected, abs=0.01), seconds
    assert outlook.wait(2, 100.0) == pytest.approx(3.0, abs=0.4)


@given(
    ages=st.lists(st.floats(0.0, 9.99), min_size=1, max_size=150),
    asked=st.lists(st.floats(0.0, 19.9), min_size=1, max_size=9),
)
def test_no_more_is_promised_than_comes_and_no_less_held_possible(ages: list[float], asked: list[float]):
    outlook = of(*[10.0] * 20)
    for seconds in asked:
        if outlook.stale(100.0):
            outlook.look([100.0 - age for age in ages], 100.0)
        # Each place comes free when its call ends, and every 10 s from then on; a step is 20 s / 64.
        comes, soon = (sum(int((later + age) // 10.0) for age in ages) for later in (seconds, seconds + 0.3125))
        assert outlook.places(seconds, 100.0, 3.5) < soon + 1
        assert outlook.places(seconds, 100.0, -3.5) >= comes


def test_there_is_no_time_before_now():
    outlook = of(*[10.0] * 20)
    outlook.look([91.0, 93.0, 95.0], 100.0)
    assert outlook.places(-50.0, 100.0, -3.0) < 1.0


def test_what_has_come_free_since_comes_free_no_more():
    outlook = of(*[10.0] * 20)
    outlook.look([91.0, 93.0, 95.0], 100.0)
    outlook.ended(10.0, 101.0)
    assert outlook.places(1.0, 101.0, 3.0) == pytest.approx(0, abs=0.01)
    assert outlook.places(2.5, 101.0, 3.0) == pytest.approx(1, abs=0.01)


def test_the_less_calls_are_alike_the_less_is_promised():
    outlook = of(*[1.0, 19.0] * 50)
    outlook.look([99.9] * 20, 100.0)
    assert outlook.places(2.5, 100.0, 0.0) == pytest.approx(15, abs=1.5), "a half, and a half of those behind them"
    assert outlook.places(2.5, 100.0, 3.0) < 8.0
    assert outlook.places(2.5, 100.0, -3.0) > 20.0
    # Those that have outlived the short ones are known again.
    outlook.look([95.0] * 20, 100.0)
    assert outlook.places(13.0, 100.0, 3.0) == pytest.approx(0, abs=0.01)


def test_short_ones_of_a_burst_do_not_hide_its_long_ones():
    steady = [(100.0 + number, 20.0 if number % 2 else 2.0) for number in range(100)]
    outlook = Outlook()
    for end, took in steady:
        outlook.ended(took, end)
    for number in range(100):
        outlook.ended(2.0, 200.0 + number * 0.01)
    outlook.look([200.9] * 10, 201.0)
    assert outlook.places(5.0, 201.0, 0.0) == pytest.approx(7.5, abs=0.5)


def test_one_that_has_outlived_all_goes_on_for_a_while():
    outlook = of(*[1.0] * 20)
    outlook.look([0.0], 100.0)
    assert 0.0 < outlook.places(2.0, 100.0, 0.0) < 0.1


def test_a_look_is_soon_stale():
    outlook = of(*[1.0] * 20)
    assert outlook.stale(100.0)
    outlook.look([99.5], 100.0)
    assert not outlook.stale(100.01)
    assert outlook.stale(100.2)


def test_with_nobody_inside_nothing_comes_free():
    outlook = of(*[1.0] * 20)
    outlook.look([], 100.0)
    assert outlook.places(60.0, 100.0, 0.0) == pytest.approx(0, abs=0.01)
    assert outlook.wait(1, 100.0) == float("inf")
