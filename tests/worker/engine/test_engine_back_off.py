"""Pauses between the lives of a failing engine."""

import pytest
from tailrace.worker.engine.back_off import BackOff
from tailrace.worker.engine.settings import StartSettings


def test_pauses_double_up_to_the_limit():
    back_off = BackOff(StartSettings(), draw=lambda: 1.0)
    assert [back_off.after(0.0) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_thousand_failures_do_not_overflow():
    back_off = BackOff(StartSettings(), draw=lambda: 1.0)
    assert [back_off.after(0.0) for _ in range(2000)][-1] == 60


@pytest.mark.parametrize(("drawn", "pause"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_chance_moves_a_pause_within_its_upper_half(drawn, pause):
    assert BackOff(StartSettings(), draw=lambda: drawn).after(0.0) == pause


def test_only_a_long_run_forgives():
    back_off = BackOff(StartSettings(long_run=300), draw=lambda: 1.0)
    back_off.after(0.0)
    assert back_off.after(299.0) == 2
    assert back_off.after(300.0) == 1
    assert back_off.after(0.0) == 2


def test_a_loop_is_told_from_the_configured_number_of_failures_on():
    back_off = BackOff(StartSettings(crash_loop=3))
    told = []
    for _ in range(4):
        back_off.after(0.0)
        told.append(back_off.looping)
    assert told == [False, False, True, True]
