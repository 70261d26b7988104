"""What is counted of a worker, and what of that speaks against it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tailrace.plugins.breaker.circuit import Circuit, Why
from tailrace.plugins.breaker.outliers import Outliers, blames
from tailrace.plugins.breaker.record import Baseline, Record
from tailrace.plugins.breaker.settings import Config
from tailrace.proxy.fault import (
    DRAINED,
    INTERNAL,
    Fault,
    Whose,
    bad_answer,
    connect_failed,
    connection_lost,
    fallen_silent,
    false_end,
    no_worker,
    timed_out,
)

pytestmark = pytest.mark.interpreted
LOST = connection_lost(sent=True)


def http(status: int, whose: Whose = Whose.ENGINE, kind: str = "http_error") -> Fault:
    return Fault(kind=kind, whose=whose, status=status, code="x", message="x")


@pytest.mark.parametrize(
    ("fault", "speaks"),
    [
        (LOST, True),
        (connect_failed("refused"), True),
        (bad_answer("x"), True),
        (false_end("x"), True),
        (http(500), True),
        (http(503), True),
        (timed_out("first_content", 30.0), True),
        (timed_out("gap", 60.0), True),
        (connection_lost(sent=False), False),
        (http(400, Whose.CLIENT), False),
        (http(404, Whose.CLIENT), False),
        (http(422, Whose.CLIENT), False),
        (http(429), False),
        (http(501), False),
        (http(503, kind="overloaded"), False),
        (http(503, kind="unavailable"), False),
        (http(502, Whose.GATEWAY, "worker_refused"), False),
        (timed_out("total", 5.0), False),
        (fallen_silent("x"), False),
        (DRAINED, False),
        (INTERNAL, False),
        (no_worker("m"), False),
    ],
    ids=lambda value: f"{value.kind}-{value.status}" if isinstance(value, Fault) else "",
)
def test_what_speaks_against_a_worker(fault: Fault, speaks: bool):
    assert blames(fault) is speaks


def circuit() -> Circuit:
    return Circuit(SimpleNamespace(name="w", pools=[]))  # type: ignore[arg-type]


def judged(record_of, fault: Fault = LOST, **settings) -> Why | None:
    each = circuit()
    record_of(each.record)
    found = Outliers(Config(**settings)).after_fault(each, fault)
    return None if found is None else found[0]


def failing(count: int, *, stalled: bool = False, good: int = 0, now: float = 100.0):
    def record_of(record: Record) -> None:
        for _ in range(good):
            record.succeeded(now)
        for _ in range(count):
            record.failed(now, stalled=stalled)

    return record_of


def alternating(good: int, bad: int):
    def record_of(record: Record) -> None:
        for number in range(good + bad):
            if number % (good + bad) < good:
                record.succeeded(100.0)
        for _ in range(bad):
            record.failed(100.0, stalled=False)
            record.streak = 1

    return record_of


def test_faults_in_a_row():
    assert judged(failing(4)) is None
    assert judged(failing(5)) is Why.FAULTS
    assert judged(failing(2), faults=2) is Why.FAULTS


def test_a_success_breaks_the_row():
    record = Record()
    for _ in range(4):
        record.failed(1.0, stalled=True)
    record.succeeded(1.0)
    record.failed(1.0, stalled=False)
    assert (record.streak, record.stalls) == (1, 0)


def test_share_of_success():
    assert judged(alternating(16, 4)) is None
    assert judged(alternating(15, 5)) is Why.SUCCESS
    assert judged(alternating(10, 4)) is None, "too few calls"


def test_success_is_that_of_the_last_half_minute():
    record = Record()
    for _ in range(30):
        record.failed(100.0, stalled=False)
    record.succeeded(131.0)
    assert (record.good, record.bad) == (1, 0)
    record.failed(10_000.0, stalled=False)
    assert (record.good, record.bad) == (0, 1)


def test_stalls_in_a_row_weigh_more():
    slow = timed_out("first_content", 30.0)
    assert judged(failing(2, stalled=True), slow) is None
    assert judged(failing(3, stalled=True), slow) is Why.STALLS


def test_any_fault_while_it_is_let_in_again():
    each = circuit()
    each.share = 0.5
    each.record.failed(1.0, stalled=False)
    found = Outliers(Config()).after_fault(each, LOST)
    assert found is not None
    assert found[0] is Why.AGAIN


@pytest.mark.parametrize("usual", [0.02, 0.3, 4.0])
def test_a_baseline_finds_the_median(usual: float):
    baseline = Baseline(usual * 5)
    for number in range(400):
        baseline.note(usual * (0.5 + number % 10 / 10) * (50 if number % 10 == 3 else 1))
    assert usual * 0.7 < baseline.median < usual * 1.4


def fleet(paces: list[float], pool: object, samples: int = 20, now: float = 100.0) -> list[Circuit]:
    found = []
    for pace in paces:
        each = circuit()
        each.worker.pools = [pool]  # type: ignore[list-item]
        for _ in range(samples):
            each.record.paced(pace, pace * 0.1, now)
        found.append(each)
    return found


@pytest.mark.parametrize(
    ("paces", "slowest"),
    [
        ([1.0, 1.1, 0.9, 10.0], 3),
        ([1.0, 10.0], 1),
        ([10.0, 1.0], 0),
        ([1.0, 1.1, 2.9], None),
        ([10.0, 10.0, 10.0], None),
        ([10.0], None),
        ([1.0, 1.0, 1.0, 1.0, 5.0, 9.0], 5),
    ],
)
def test_the_slowest_beside_the_median_of_the_others(paces, slowest):
    circuits = fleet(paces, object())
    found = Outliers(Config()).slowest(circuits, 100.0)
    assert [circuits.index(each) for each, _ in found] == ([] if slowest is None else [slowest])


def test_slowness_needs_samples_that_are_fresh_and_a_difference_that_is_felt():
    pool = object()
    outliers = Outliers(Config())
    assert outliers.slowest(fleet([1.0, 10.0], pool, samples=19), 100.0) == []
    assert outliers.slowest(fleet([1.0, 10.0], pool), 161.0) == []
    close = fleet([1.0, 10.0], pool)
    for each in close:
        each.record.wait *= 0.01
    assert outliers.slowest(close, 100.0) == []


def test_pools_are_not_compared_with_each_other():
    assert Outliers(Config()).slowest([*fleet([1.0, 1.1], "a"), *fleet([9.0, 9.5], "b")], 100.0) == []


def asked(size: int, model: str = "m") -> Any:
    """An attempt at a model, of a call that asked for `m`."""
    return SimpleNamespace(entry=SimpleNamespace(name=model), call=SimpleNamespace(model="m", size=size))


def test_the_ratio_is_beside_attempts_of_the_same_kind():
    outliers = Outliers(Config())
    small, large = asked(100), asked(1_000_000)
    for _ in range(50):
        outliers.ratio(small, 0.1)
        outliers.ratio(large, 5.0)
    assert 0.8 < outliers.ratio(small, 0.1) < 1.25
    assert 0.8 < outliers.ratio(large, 5.0) < 1.25
    assert outliers.so_far(small, 1.0) > 8
    assert outliers.so_far(asked(1, "other"), 1.0) == 0.0


def test_the_pace_of_a_fallback_is_that_of_the_model_that_answers():
    """Else the quick answers of a small model would make those of the big one look slow."""
    outliers = Outliers(Config())
    for _ in range(50):
        outliers.ratio(asked(100), 1.0)
        outliers.ratio(asked(100, "tiny"), 0.01)
    assert 0.8 < outliers.ratio(asked(100), 1.0) < 1.25
    assert 0.8 < outliers.so_far(asked(100, "tiny"), 0.01) < 1.25
