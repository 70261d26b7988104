"""The usual wait for first content: a rolling quantile by kind, on a clock of the test's."""

from __future__ import annotations

import random

import pytest
from tailrace.plugins.hedge.latencies import BOUNDS, Histogram, Latencies


@pytest.mark.parametrize("seconds", [0.0, 0.0005, 0.001, 0.0011, 0.03, 0.25, 1.0, 17.3, 100.0, 1e9])
def test_one_time_is_every_quantile_of_itself(seconds: float):
    histogram = Histogram(3)
    histogram.add(seconds)
    for share in (0.0, 0.5, 0.95):
        found = histogram.quantile(share)
        assert found in (BOUNDS[0], BOUNDS[-1]) or seconds <= found * 1.000001 < seconds * 1.16


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
def test_a_quantile_is_that_of_the_times(share: float):
    drawn = random.Random(1)
    times = [drawn.lognormvariate(-1.5, 0.8) for _ in range(5000)]
    histogram = Histogram(10)
    for each in times:
        histogram.add(each)
    exact = sorted(times)[int(len(times) * share)]
    assert exact / 1.16 < histogram.quantile(share) < exact * 1.16


def test_the_oldest_slice_is_forgotten():
    histogram = Histogram(3)
    histogram.add(1.0)
    for _ in range(2):
        histogram.turn()
        histogram.add(0.01)
    assert histogram.count == 3
    assert histogram.quantile(1.0) >= 1.0
    histogram.turn()
    assert histogram.count == 2
    assert histogram.quantile(1.0) < 0.02
    histogram.turn()
    histogram.turn()
    assert histogram.count == 0


def noted(latencies: Latencies, kind: str, count: int, seconds: float, now: float) -> None:
    for _ in range(count):
        latencies.note(kind, seconds, now)


def test_usual_is_known_with_the_next_refresh_and_enough_samples():
    latencies = Latencies(0.95, 20)
    noted(latencies, "a", 20, 0.1, 0.0)
    noted(latencies, "b", 19, 0.1, 0.0)
    assert latencies.usual("a", 2.9) is None
    assert latencies.usual("a", 3.0) == pytest.approx(0.1, rel=0.16)
    assert latencies.usual("b", 3.0) is None
    assert latencies.usual("c", 3.0) is None


def test_usual_follows_the_last_half_minute():
    latencies = Latencies(0.95, 20)
    for second in range(30):
        noted(latencies, "a", 5, 0.1, float(second))
    for second in range(30, 45):
        noted(latencies, "a", 5, 0.5, float(second))
    assert latencies.usual("a", 45.0) == pytest.approx(0.5, rel=0.16)
    for second in range(45, 80):
        noted(latencies, "a", 5, 0.1, float(second))
    assert latencies.usual("a", 80.0) == pytest.approx(0.1, rel=0.16)


@pytest.mark.parametrize("later", [31.0, 60.0, 1e6])
def test_nothing_is_usual_after_a_pause(later: float):
    latencies = Latencies(0.95, 20)
    noted(latencies, "a", 100, 0.1, 0.0)
    assert latencies.usual("a", 3.0) is not None
    assert latencies.usual("a", later + 3.0) is None
    assert latencies._histograms == {}


def test_kinds_are_bounded_and_make_room():
    latencies = Latencies(0.95, 1)
    for number in range(500):
        latencies.note(number, 0.1, 0.0)
    assert len(latencies._histograms) == 128
    latencies.note("new", 0.1, 50.0)
    assert len(latencies._histograms) == 1
