"""The sweep looks at everything, whatever comes of looking at one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import run
from tailrace.proxy.sweep import LANES, TICK, Clock, Sweep
from tailrace.proxy.upstream import UpstreamConnection


class Looked:
    """Counts visits, and may fail at each."""

    def __init__(self, *, fails: bool) -> None:
        self.visits = 0
        self._fails = fails

    def visit(self, now: float) -> None:
        self.visits += 1
        if self._fails:
            raise RuntimeError("broken")


def test_one_that_fails_keeps_no_other_from_being_looked_at(caplog):
    async def body():
        sweep = Sweep(asyncio.get_running_loop())
        watched = [Looked(fails=number % 2 == 0) for number in range(8 * LANES)]
        lanes = [sweep.add(each) for each in watched]
        assert len({id(lane) for lane in lanes}) == LANES
        sweep.start()
        while not all(each.visits for each in watched):
            await asyncio.sleep(TICK)
        sweep.stop()

    run(body())
    assert "could not be looked at" in caplog.text


class Time:
    """A loop whose time a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self._then: Callable[[], None] = list

    def time(self) -> float:
        return self.now

    def call_later(self, _delay: float, then: Callable[[], None]) -> None:
        self._then = then

    def tick(self, late: float = 0.0) -> None:
        self.now += TICK + late
        self._then()


def sweeping(count: int) -> tuple[Time, Sweep, list[Looked]]:
    time: Any = Time()
    sweep = Sweep(time)
    watched = [Looked(fails=False) for _ in range(count)]
    for each in watched:
        sweep.add(each)
    sweep.start()
    return time, sweep, watched


@pytest.mark.interpreted  # with stand-ins, which compiled code refuses
@pytest.mark.parametrize("late", [0.1, 5.0])
def test_a_tick_after_a_standstill_looks_at_nothing_yet(late: float) -> None:
    time, sweep, watched = sweeping(LANES)
    told: list[float] = []
    sweep.ticking.append(told.append)
    time.tick(late)
    assert not any(each.visits for each in watched)
    assert told == [sweep.clock.now] == [time.now]
    for _ in range(LANES):
        time.tick(0.01)
    assert [each.visits for each in watched] == [1] * LANES


@pytest.mark.interpreted
def test_a_loop_that_is_always_late_looks_at_everything_all_the_same() -> None:
    time, _, watched = sweeping(LANES)
    for _ in range(2 * LANES):
        time.tick(late=0.3)
    assert [each.visits for each in watched] == [1] * LANES


@pytest.mark.interpreted
def test_what_comes_in_a_standstill_is_taken_for_as_late_as_it_may_have_come() -> None:
    """Where bytes are read before the tick that is late, they bear the time from before the standstill."""
    time, sweep, _ = sweeping(0)
    heard: list[float] = []
    sink: Any = SimpleNamespace(on_quiet=lambda quiet, now: heard.append(round(quiet, 6)))
    pool: Any = SimpleNamespace(idle_limit=4.0, max_age=300.0)
    before, meanwhile = UpstreamConnection(pool, sweep.clock), UpstreamConnection(pool, sweep.clock)
    before.sink = meanwhile.sink = sink
    time.tick()
    meanwhile.touched = sweep.clock.now
    time.tick(late=5.0)
    time.tick()
    before.visit(time.now)
    meanwhile.visit(time.now)
    assert heard == [round(5.0 + 3 * TICK, 6), TICK]
    meanwhile.sink = None
    meanwhile.visit(time.now)
    assert meanwhile.closed  # whoever keeps its other end has seen it rest all the time


def test_without_a_standstill_a_time_is_what_it_was() -> None:
    assert Clock(3.0).latest(2.5) == 2.5
