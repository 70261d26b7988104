"""One timer for many calls: each is told once, not before it is due, and those who leave are not told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tailrace.plugins.deadline.alarms import COARSE, FINE, SOON, Alarms

pytestmark = pytest.mark.interpreted
MS = 1_000_000


class Clockwork:
    """A loop and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000 * MS + 1
        self.timers: list[list[Any]] = []
        self.rung: list[tuple[str, int]] = []
        self.alarms = Alarms(lambda: self.now, lambda call: self.rung.append((call.name, self.now)))  # type: ignore

    def call_later(self, seconds: float, work: Any, *args: Any) -> Any:
        timer = [self.now + round(seconds * 1e9), work, args]
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer) if timer in self.timers else None)

    def call(self, name: str) -> Any:
        return _Call(name, self)

    def set(self, name: str, after: int) -> tuple[Any, int]:
        call = self.call(name)
        return call, self.alarms.set(call, self.now + after, self.now)

    def run(self, until: int) -> None:
        while self.timers and min(timer[0] for timer in self.timers) <= until:
            timer = min(self.timers, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1](*timer[2])
        self.now = until


class _Call:
    def __init__(self, name: str, loop: Clockwork) -> None:
        self.name = name
        self.client = SimpleNamespace(loop=loop)


@pytest.mark.parametrize(("after", "grain"), [(50 * MS, FINE), (SOON, COARSE), (3 * MS, FINE)])
def test_when_it_is_due_and_not_before(after: int, grain: int):
    c = Clockwork()
    due = c.now + after
    c.set("a", after)
    c.run(due + 2 * COARSE)
    [(_, moment)] = c.rung
    assert due <= moment <= due + grain
    assert c.timers == []


def test_who_leaves_is_not_told():
    c = Clockwork()
    call, slot = c.set("a", 50 * MS)
    c.set("b", 50 * MS)
    c.alarms.drop(call, slot)
    c.alarms.drop(call, slot)
    c.run(c.now + 1000 * MS)
    assert [name for name, _ in c.rung] == ["b"]


def test_there_is_one_timer_whoever_comes():
    c = Clockwork()
    for number in range(100):
        c.set(str(number), (100 - number) * 10 * MS)
        assert len(c.timers) == 1
    c.run(c.now + 2000 * MS)
    assert [name for name, _ in c.rung] == [str(number) for number in reversed(range(100))]
    assert c.timers == []


def test_nothing_is_kept_of_those_who_left():
    c = Clockwork()
    for number in range(1000):
        call, slot = c.set(str(number), 500 * MS + number * MS)
        c.alarms.drop(call, slot)
    assert not any(c.alarms._slots.values())
    c.run(c.now + 5000 * MS)
    assert (c.alarms._slots, c.alarms._order) == ({}, [])
    assert c.rung == []


def test_calls_that_end_early_leave_no_more_than_the_slots_they_were_due_in():
    c = Clockwork()
    slots = set()
    for number in range(1000):
        call, slot = c.set(str(number), 600_000 * MS)
        slots.add(slot)
        c.alarms.drop(call, slot)
        c.now += MS
    assert len(slots) < 30
    assert len(c.alarms._order) == len(c.alarms._slots) == len(slots)


def test_what_is_due_already():
    c = Clockwork()
    c.set("a", -5 * MS)
    c.run(c.now)
    assert [name for name, _ in c.rung] == ["a"]


def test_at_the_end_nobody_is_told():
    c = Clockwork()
    c.set("a", 5 * MS)
    c.alarms.stop()
    c.run(c.now + 1000 * MS)
    assert (c.rung, c.timers) == ([], [])


def test_who_comes_while_another_is_told_puts_nobody_off():
    clockwork = Clockwork()
    ring = clockwork.alarms._ring

    def told(call: Any) -> None:
        ring(call)
        if call.name == "first":
            clockwork.set("late", 4000 * MS)

    clockwork.alarms._ring = told
    clockwork.set("first", 300 * MS)
    clockwork.set("second", 600 * MS)
    begun = clockwork.now
    clockwork.run(begun + 1000 * MS)
    assert [name for name, _ in clockwork.rung] == ["first", "second"]
    assert clockwork.rung[1][1] - begun < 600 * MS + COARSE
    clockwork.run(begun + 5000 * MS)
    assert [name for name, _ in clockwork.rung][2:] == ["late"]
