"""What the forecast of first contents believes, and for how long."""

from __future__ import annotations

import pytest
from tailrace.plugins.deadline.forecast import FRESH, TRIAL, Forecast


def seen(*took: float, model: str = "m", size: int = 100) -> Forecast:
    """Observations a hundredth of a second apart, the last at 1.0."""
    forecast = Forecast()
    for number, each in enumerate(took):
        forecast.note(model, size, True, each, 1.0 - (len(took) - 1 - number) / 100)
    return forecast


def test_nothing_is_known_at_first():
    assert Forecast().times("m", 1, True, 0.0)[0] == 0.0
    assert Forecast().speaks_against("m", 1, True, 0.0, 0.0) == 0.0


def test_steady_answers_are_believed():
    assert seen(*[0.5] * 20).speaks_against("m", 100, True, 0.4, 1.0) == pytest.approx(0.5)
    assert seen(*[0.5] * 20).speaks_against("m", 100, True, 0.6, 1.0) == 0.0


def test_one_late_answer_is_hardly_believed():
    assert seen(0.5).speaks_against("m", 100, True, 0.3, 1.0) == 0.0
    assert seen(0.5).speaks_against("m", 100, True, 0.2, 1.0) == 0.5


def test_unsteady_answers_are_believed_less():
    unsteady = seen(0.2, 0.8, 0.2, 0.8, 0.2, 0.8)
    least, enough = unsteady.times("m", 100, True, 1.0)
    assert least < 0.4
    assert enough > 0.6


def test_models_and_sizes_are_apart():
    forecast = seen(*[0.5] * 20)
    assert forecast.times("other", 100, True, 1.0)[0] == 0.0
    assert forecast.times("m", 1_000_000, True, 1.0)[0] == 0.0
    assert forecast.times("m", 1000, True, 1.0)[0] == pytest.approx(0.5, rel=0.01), "all short prompts are alike"
    assert forecast.times("m", 100, False, 1.0) == (0.0, 0.0), "what can come as a stream is apart"


def test_an_old_observation_says_nothing():
    forecast = seen(*[0.5] * 20)
    assert forecast.times("m", 100, True, 1.0 + FRESH)[0] == pytest.approx(0.5, rel=0.01)
    assert forecast.times("m", 100, True, 1.01 + FRESH)[0] == 0.0
    forecast.note("m", 100, True, 0.1, 1.5 + FRESH)
    assert forecast.times("m", 100, True, 1.5 + FRESH) == pytest.approx((0.05, 0.3)), (
        "what comes then is no average with it"
    )


def test_one_call_is_tried_now_and_then():
    forecast = seen(*[0.5] * 20)
    now = 1.0 + TRIAL
    assert forecast.speaks_against("m", 100, True, 0.1, now) == 0.0
    assert forecast.speaks_against("m", 100, True, 0.1, now) == pytest.approx(0.5)
    assert forecast.speaks_against("m", 100, True, 0.1, now + TRIAL) == 0.0


def test_what_did_not_come_in_time_counts_as_later_than_that():
    forecast = seen(*[0.1] * 5)
    for _ in range(30):
        forecast.note_late("m", 100, True, 0.5, 1.0)
    assert forecast.times("m", 100, True, 1.0)[0] > 0.4
    before = forecast.times("m", 100, True, 1.0)[0]
    forecast.note_late("m", 100, True, 0.05, 1.0)
    assert forecast.times("m", 100, True, 1.0)[0] == before, "a short wait says nothing"
