"""Medians, ratios, and which measurements they may be taken from."""

from typing import Any

import pytest
from rig.measure import keeps_up, stalled
from rig.scenarios import SCENARIOS
from rig.summary import comparable, ratios, tables


def seen(proxy: str, scenario: str = "S1", cost: float = 100.0, foreign: float = 0.0, **load: Any) -> dict[str, Any]:
    return {
        "proxy": proxy,
        "scenario": scenario,
        "cpu_us_per_request": cost,
        "cpu_us_per_token": cost / 100,
        "cpu_share": 0.9,
        "rss_peak_mib": 20.0,
        "foreign_proxy_core": foreign,
        "foreign_rig_core": 0.0,
        "keeps_up": True,
        "load": {
            "ok": 10,
            "failed": 0,
            "unfinished": 0,
            "rps": 200.0,
            "tokens_per_s": 9000.0,
            "max_gap_ms": 10.0,
            "latency_us": {"p50": 1.0, "p99": 2.0},
            "token_delay_us": {"p50": 1.0, "p99": 2.0},
            **load,
        },
    }


def test_disturbed_rounds_are_left_out_unless_there_are_no_others() -> None:
    quiet, noisy = seen("a", cost=1), seen("a", cost=9, foreign=0.5)
    assert comparable([quiet, noisy]) == [quiet]
    assert comparable([noisy]) == [noisy]


def test_ratios_are_of_medians() -> None:
    rounds = [seen("tailrace", cost=cost) for cost in (50, 60, 500)] + [seen("naive", cost=cost) for cost in (240, 240)]
    assert "| S1 | 0.25 |" in ratios([*rounds, seen("direct", cost=0)], "tailrace")
    assert ratios([seen("naive")], "tailrace") == ""


def test_streams_are_compared_by_the_token() -> None:
    text = tables([seen("tailrace", "S3", cost=1234), seen("tailrace", "S3", cost=1434)])
    assert "200 streams" in text
    assert "| tailrace | 2 | 13.34 | 1334 |" in text
    assert " 15% |" in text


def test_a_proxy_without_an_answer_does_not_break_the_tables() -> None:
    broken = seen("naive") | {"cpu_us_per_request": None, "keeps_up": False}
    broken["load"]["latency_us"] = {"n": 0}
    assert "| naive | 1 |  |" in tables([broken])
    assert "does not keep up" in tables([broken])
    assert "| S1 |  |" in ratios([seen("tailrace"), broken], "tailrace")


@pytest.mark.parametrize(
    ("scenario", "load", "kept"),
    [
        ("S1", {"rps": 1.0}, True),
        ("S1", {"failed": 1}, False),
        ("S2", {"rps": 199.0}, True),
        ("S2", {"rps": 150.0}, False),
        ("S2", {"unfinished": 3}, False),
        ("S3", {"tokens_per_s": 9700.0}, True),
        ("S3", {"tokens_per_s": 7000.0}, False),
    ],
)
def test_keeping_up_is_carrying_the_offered_load(scenario: str, load: dict[str, Any], kept: bool) -> None:
    assert keeps_up(seen("a", scenario, **load), SCENARIOS[scenario]) is kept


def test_a_measurement_that_the_machine_stopped_is_told_from_a_slow_proxy() -> None:
    assert stalled(seen("a", max_gap_ms=300.0), closed_loop=False)
    assert not stalled(seen("a"), closed_loop=True)
    starved = seen("a", foreign=0.8) | {"cpu_share": 0.1}
    assert stalled(starved, closed_loop=True)
    assert not stalled(starved, closed_loop=False)
    assert not stalled(seen("direct", foreign=0.8) | {"cpu_share": 0.0}, closed_loop=True)


def test_only_loads_without_a_pace_of_their_own_are_closed_loops() -> None:
    assert {name for name, scenario in SCENARIOS.items() if scenario.closed_loop} == {"S1", "S4", "S5", "S5m", "S5u"}
