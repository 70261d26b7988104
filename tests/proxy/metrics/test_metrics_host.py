"""Metrics of what plugins run once on a host."""

from __future__ import annotations

import logging

import pytest
from tailrace.proxy.metrics import Segment, Supervision, Totals, render

MOST = 2**53


class Part:
    """Gives what `yields` says."""

    def __init__(self, *yields) -> None:
        self.yields = yields

    def metrics(self):
        for each in self.yields:
            if each is None:
                raise RuntimeError("on purpose")
            yield each


@pytest.fixture
def supervision(segment: Segment) -> Supervision:
    return Supervision(segment)


def lines(supervision: Supervision, of: str = "tailrace_acme_") -> list[str]:
    supervision.host_values.collect()
    page = render([supervision.segment], Totals())
    return [line for line in page.splitlines() if line.startswith(of)]


def test_counters_and_gauges_of_a_part(supervision):
    supervision.host_values.add("acme", Part(("seen_total", {"kind": "a"}, 2), ("size", {}, 4.5)))
    supervision.host_values.add("plain", object())
    assert lines(supervision) == ['tailrace_acme_seen_total{kind="a"} 2', "tailrace_acme_size 4.5"]


def test_whole_numbers_keep_every_digit(supervision):
    part = Part()
    supervision.host_values.add("acme", part)
    for spent in (0, 1, 1_234_567_890_000_001, MOST // 2 + 1, MOST - 2, MOST - 1, MOST):
        part.yields = (("nano_total", {}, spent), ("left", {}, -spent))
        assert lines(supervision) == [f"tailrace_acme_left {-spent}", f"tailrace_acme_nano_total {spent}"]


def test_a_great_count_goes_on_by_one(supervision):
    part = Part()
    supervision.host_values.add("acme", part)
    for spent in range(MOST - 5, MOST + 1):
        part.yields = (("nano_total", {}, spent),)
        assert lines(supervision) == [f"tailrace_acme_nano_total {spent}"]


def test_what_is_beyond_64_series_is_added_up_and_told_once(supervision, caplog):
    part = Part(*((name, {"who": f"{number:03}"}, 3) for number in range(70) for name in ("nano_total", "held")))
    with caplog.at_level(logging.ERROR, "tailrace"):
        supervision.host_values.add("acme", part)
        assert len(lines(supervision, "tailrace_acme_nano_total{")) == 65
    assert 'tailrace_acme_nano_total{who="other"} 18' in lines(supervision)
    assert len(lines(supervision, "tailrace_acme_held{")) == 64
    assert lines(supervision, "tailrace_metrics_series_folded_total")[0] != "tailrace_metrics_series_folded_total 0"
    beyond = "has 64 series, or had other labels before: what is beyond is"
    assert [record.message for record in caplog.records] == [
        f"tailrace_acme_nano_total {beyond} added up under 'other'",
        f"tailrace_acme_held {beyond} left out",
    ]


def test_a_part_that_fails_is_logged_once_and_counted_and_the_others_are_shown(supervision, caplog):
    with caplog.at_level(logging.ERROR, "tailrace"):
        supervision.host_values.add("bad", Part(("first_total", {}, 1), None, ("second_total", {}, 1)))
        supervision.host_values.add("worse", Part(("huge_total", {}, 10**400)))
        supervision.host_values.add("acme", Part(("seen_total", {}, 5)))
        assert lines(supervision) == ["tailrace_acme_seen_total 5"]
        assert lines(supervision, "tailrace_bad_") == ["tailrace_bad_first_total 1"]
    assert [record.message for record in caplog.records] == [
        "plugin 'bad' failed to give its metrics",
        "plugin 'worse' failed to give its metrics",
    ]
    assert lines(supervision, 'tailrace_plugin_failures_total{plugin="bad"}') != []


def test_a_gauge_that_is_given_no_more_is_shown_no_more(supervision):
    part = Part(("left", {"who": "a"}, 1), ("left", {"who": "b"}, 2))
    supervision.host_values.add("acme", part)
    assert len(lines(supervision)) == 2
    part.yields = part.yields[1:]
    assert lines(supervision) == ['tailrace_acme_left{who="b"} 2']
    part.yields = (("left", {"who": "a"}, 3),)
    assert lines(supervision) == ['tailrace_acme_left{who="a"} 3']


def test_counters_go_on_when_another_part_begins_and_gauges_go(supervision):
    old = Part(("seen_total", {}, 5), ("size", {}, 1))
    supervision.host_values.add("acme", old)
    old.yields = (("seen_total", {}, 7), ("size", {}, 1))
    supervision.host_values.remove("acme")
    assert lines(supervision) == ["tailrace_acme_seen_total 7"]
    supervision.host_values.add("acme", Part(("seen_total", {}, 2)))
    assert lines(supervision) == ["tailrace_acme_seen_total 9"]
