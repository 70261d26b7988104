"""Whose turn comes in time, at a desk whose places come free when the test says."""

from __future__ import annotations

import pytest
from desks import Call, Played, S
from tailrace.plugins.admission.line import Waiter
from tailrace.plugins.admission.settings import ClassSettings

pytestmark = pytest.mark.interpreted


class Foreseen(Played):
    """A desk whose calls have taken 10 s each, and places one call a second apart."""

    def __init__(self, *classes: ClassSettings) -> None:
        super().__init__(10, *classes)
        for number in range(40):
            self.desk.outlook.ended(10.0, 60.0 + number)

    def fill(self, of: str) -> None:
        for at in range(10):
            assert self.come(f"{of}{at}", of, at=100 + at)

    def in_time(self, of: str, seconds: float, at: float = 109.0, tenant: str = "", due: float = 1000) -> bool:
        [rank] = [rank for rank in self.desk.ranks if rank.settings.name == of]
        return self.desk.foresight.in_time(rank, tenant, int(due * S), seconds, int(at * S))


ONLY = ClassSettings(name="only")


def test_a_turn_comes_when_those_inside_and_ahead_allow():
    played = Foreseen(ONLY)
    played.fill("only")
    # The first goes at 110, then one a second.
    assert not played.in_time("only", 0.9)
    assert played.in_time("only", 1.4)
    for number in range(3):
        assert not played.come(f"w{number}", "only", at=109.0)
    assert not played.in_time("only", 3.9)
    assert played.in_time("only", 4.4)
    # One has gone before its time: the next one goes at 111.
    played.go("only0", at=109.01)
    assert not played.in_time("only", 3.4, at=109.02)
    assert played.in_time("only", 4.4, at=109.02)


def test_whoever_is_due_first_waits_for_those_before_it_only():
    played = Foreseen(ONLY)
    played.fill("only")
    for number in range(5):
        played.come(f"w{number}", "only", at=109.0, tenant="many", due=500 + number)
    assert not played.in_time("only", 2.4, tenant="many", due=999)
    assert played.in_time("only", 1.4, tenant="many", due=300)
    assert played.in_time("only", 2.4, tenant="other", due=999)


def test_places_that_others_have_reserved_are_not_for_a_class():
    classes = ClassSettings(name="kept", reserve=0.5), ClassSettings(name="rest")
    played = Foreseen(*classes)
    for at in range(10):
        assert played.come(f"{at}", "rest" if at % 2 else "kept", at=100 + at)
    assert played.in_time("kept", 1.4)
    assert not played.in_time("rest", 1.4)
    assert played.in_time("rest", 2.4)


def test_classes_that_go_first_take_what_comes_free():
    played = Foreseen(ClassSettings(name="first"), ClassSettings(name="second"))
    played.fill("first")
    assert not played.in_time("second", 4.0), "places go to the first class at this rate"
    played.desk.ranks[1].promote_ns = 2 * S
    assert played.in_time("second", 4.0), "but for one that has waited for 2 s"


def test_whoever_is_there_beyond_the_places_leaves_none():
    played = Foreseen(ONLY)
    played.fill("only")
    played.desk.resize(8, 109 * S)
    assert not played.in_time("only", 2.4)
    assert played.in_time("only", 3.4)


def test_those_who_wait_in_vain_by_now():
    played = Foreseen(ONLY)
    played.fill("only")
    [rank] = played.desk.ranks
    waiters = [
        Waiter(Call(str(n)), "", 0, 109 * S, lambda: None, int(until * S))  # type: ignore[arg-type]
        for n, until in enumerate((110.5, 109.2, 111.5, 111.0, 0.0))
    ]
    for each in waiters:
        played.desk.queue(each, rank)
    # The second and the fourth; the third comes second then.
    assert [each.call.name for each in played.desk.foresight.hopeless(109 * S)] == ["1", "3"]  # type: ignore[attr-defined]


def test_a_burst_into_free_places_is_not_what_is_usual():
    """Nobody waits, and all places come free within ten seconds: who can wait for a minute may."""
    played = Played(64, ClassSettings(name="first"), ClassSettings(name="last"))
    for number in range(70):
        assert played.come(f"q{number}", "first", at=number)
        played.go(f"q{number}", at=number + 10.0)
    for number in range(64):
        assert played.come(f"b{number}", "first", at=200.0)
    [_, last] = played.desk.ranks
    assert played.desk.foresight.in_time(last, "", 1000 * S, 60.0, int(200.1 * S))
