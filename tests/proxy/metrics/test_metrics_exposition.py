"""The text that Prometheus gets, and the sum behind it."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailrace.proxy.metrics import Segment, Supervision, Totals, catalogue, render
from tailrace.proxy.metrics.family import Family, Kind, Merge, counter, gauge, histogram
from tailrace.proxy.metrics.register import Register

HITS = counter("test_hits_total", "Hits.", "where")
TIMES = histogram("test_seconds", "Times.", (0.1, 1.0), "where")
FAMILIES = [family for family in vars(catalogue).values() if isinstance(family, Family)]


def written(*counts):
    """A segment in which these (family, label values, offset, amount) were added."""
    segment = Segment.create()
    register = Register(segment)
    for family, values, offset, amount in counts:
        segment.slots[register.series(family, values) + offset] += amount
    return segment


def lines(text, of="test_"):
    return [line for line in text.splitlines() if line.startswith(of)]


def test_counters_and_histograms_in_text():
    text = render(
        [written((HITS, ("a",), 0, 2), (TIMES, ("b",), 0, 1.25), (TIMES, ("b",), 1, 1), (TIMES, ("b",), 3, 2))],
        Totals(),
    )
    assert lines(text) == [
        'test_hits_total{where="a"} 2',
        'test_seconds_bucket{where="b",le="0.1"} 1',
        'test_seconds_bucket{where="b",le="1"} 1',
        'test_seconds_bucket{where="b",le="+Inf"} 3',
        'test_seconds_sum{where="b"} 1.25',
        'test_seconds_count{where="b"} 3',
    ]
    assert "# HELP test_hits_total Hits.\n# TYPE test_hits_total counter\n" in text
    assert "# TYPE test_seconds histogram\n" in text
    assert text.endswith("\n")


def test_label_values_are_escaped():
    text = render([written((HITS, ('a"\\\n}',), 0, 1))], Totals())
    assert lines(text) == ['test_hits_total{where="a\\"\\\\\\n}"} 1']


def test_a_dead_process_leaves_its_counters_and_takes_its_gauges():
    level = gauge("test_level", "Level.")
    totals = Totals()
    for _ in range(3):
        dead = written((HITS, ("a",), 0, 5), (TIMES, ("a",), 2, 1), (level, (), 0, 7))
        totals.add_final(dead)
        dead.close()
    alive = written((HITS, ("a",), 0, 1), (level, (), 0, 2))
    shown = lines(render([alive], totals))
    assert 'test_hits_total{where="a"} 16' in shown
    assert 'test_seconds_count{where="a"} 3' in shown
    assert "test_level 2" in shown


def test_finals_are_bounded():
    few = counter("test_few_total", "Few.", "model", limit=5)
    totals = Totals()
    for life in range(20):
        segment = written(*[(few, (f"{life}-{number}",), 0, 1) for number in range(5)])
        totals.add_final(segment)
        segment.close()
    shown = lines(render([], totals))
    assert len(shown) == 11
    assert 'test_few_total{model="other"} 90' in shown


@pytest.mark.parametrize(
    ("merge", "expected"), [(Merge.SUM, "test_level 6"), (Merge.MIN, "test_level 1"), (Merge.MAX, "test_level 3")]
)
def test_gauges_of_several_processes(merge, expected):
    level = gauge("test_level", "Level.", merge=merge)
    segments = [written((level, (), 0, value)) for value in (2, 1, float("nan"), 3)]
    assert lines(render(segments, Totals())) == [expected]


def test_a_gauge_that_nobody_knows_is_not_shown():
    level = gauge("test_level", "Level.")
    assert lines(render([written((level, (), 0, float("nan")))], Totals()), "# TYPE test_") == []


def test_two_processes_that_use_one_name_differently_do_not_break_the_scrape():
    text = render([written((HITS, ("a",), 0, 1)), written((counter(HITS.name, "Hits."), (), 0, 1))], Totals())
    assert lines(text) == ['test_hits_total{where="a"} 1']


def test_the_supervisor_counts_beside_its_processes():
    segment = Segment.create()
    supervision = Supervision(segment)
    supervision.restarted()
    supervision.reload_failed()
    shown = lines(render([segment, written((catalogue.RELOAD_FAILURES, (), 0, 1))], Totals()), "tailrace_")
    assert "tailrace_process_restarts_total 1" in shown
    assert "tailrace_config_reload_failures_total 2" in shown


def test_promtool_finds_nothing_to_say():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    segment = written(
        *[(family, ("value",) * len(family.labels), offset, 1) for family in FAMILIES for offset in range(family.width)]
    )
    text = render([segment], Totals())
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_the_catalogue_is_consistent():
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    for family in FAMILIES:
        assert family.name.startswith(("tailrace_", "gen_ai_"))
        assert family.help.endswith(".")
        assert (family.kind is Kind.COUNTER) == family.name.endswith("_total")
        assert list(family.bounds) == sorted(set(family.bounds))


AMOUNT = st.integers(0, 1000)
COUNT = st.one_of(
    st.tuples(st.just(HITS), st.tuples(st.sampled_from("abc")), st.just(0), AMOUNT),
    st.tuples(st.just(TIMES), st.tuples(st.sampled_from("abc")), st.integers(0, 3), AMOUNT),
)


@settings(max_examples=60)
@given(st.lists(st.lists(COUNT, max_size=6), max_size=5), st.integers(0, 5))
def test_the_sum_of_many_processes_is_that_of_one_that_did_it_all(work, dead):
    one = written(*[count for counts in work for count in counts])
    segments = [written(*counts) for counts in work]
    totals = Totals()
    for segment in segments[:dead]:
        totals.add_final(segment)
    assert lines(render(segments[dead:], totals)) == lines(render([one], Totals()))
    for segment in [one, *segments]:
        segment.close()
