"""Percentiles are values that were seen, at exactly their rank."""

import pytest
from openloop.alarm import missed_beats
from openloop.percentiles import nearest_rank, summary


@pytest.mark.parametrize(
    ("count", "quantile", "rank"),
    [
        (1, 0.5, 1),
        (2, 0.5, 1),
        (3, 0.5, 2),
        (10, 0.9, 9),
        (11, 0.9, 10),
        (100, 0.99, 99),
        (1000, 0.999, 999),
        (999, 0.999, 999),
        (7, 1, 7),
        (7, 0, 1),
    ],
)
def test_nearest_rank(count: int, quantile: float, rank: int) -> None:
    assert nearest_rank(range(1, count + 1), quantile) == rank


def test_summary_is_in_milliseconds() -> None:
    figures = summary(n * 1_000_000 for n in range(200, 0, -1))
    assert figures == {"count": 200, "mean": 100.5, "p50": 100, "p90": 180, "p99": 198, "p99.9": 200, "max": 200}


def test_summary_of_nothing_is_a_count() -> None:
    assert summary([]) == {"count": 0}


def test_a_stall_is_charged_to_every_beat_it_swallowed() -> None:
    lags: list[int] = []
    assert missed_beats(due=100, now=135, period=10, lags=lags) == 140
    assert lags == [35, 25, 15, 5]
