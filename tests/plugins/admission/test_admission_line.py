"""The order in which those who wait get their places: classes, tenants, deadlines; on moments that the test sets."""

from __future__ import annotations

import pytest
from desks import Call, Played, S
from hypothesis import example, given
from hypothesis import strategies as st
from tailrace.plugins.admission.line import Line, Waiter
from tailrace.plugins.admission.settings import ClassSettings

pytestmark = pytest.mark.interpreted


def waiter(name: str, tenant: str = "", due: float = 100, since: float = 0, wake=lambda: None) -> Waiter:
    return Waiter(Call(name), tenant, int(due * S), int(since * S), wake)  # type: ignore[arg-type]


def taken(line: Line) -> list[str]:
    found = []
    while (each := line.take()) is not None:
        found.append(each.call.name)
    return found


def test_earliest_deadline_first_within_a_tenant():
    line = Line()
    for name, due in (("a", 9), ("b", 3), ("c", 5), ("d", 3)):
        line.join(waiter(name, due=due))
    assert taken(line) == ["b", "d", "c", "a"]
    assert line.count == 0


def test_tenants_take_turns_however_many_calls_they_have():
    line = Line()
    for number in range(4):
        line.join(waiter(f"many{number}", "many", due=number))
    line.join(waiter("few", "few", due=99))
    line.join(waiter("other", "other", due=98))
    assert taken(line) == ["many0", "few", "other", "many1", "many2", "many3"]


def test_nobody_saves_turns_up():
    line = Line()
    for number in range(4):
        line.join(waiter(f"a{number}", "a", due=number))
    assert [line.take().call.name for _ in range(2)] == ["a0", "a1"]  # type: ignore[union-attr]
    for number in range(3):
        line.join(waiter(f"b{number}", "b", due=number))
    assert taken(line) == ["b0", "a2", "b1", "a3", "b2"]


def test_who_leaves_is_passed_over():
    line = Line()
    waiters = [waiter(name, due=due) for due, name in enumerate("abc")]
    for each in waiters:
        line.join(each)
    line.leave(waiters[0])
    line.leave(waiters[0])
    assert line.count == 2
    assert line.oldest() is waiters[1]
    assert taken(line) == ["b", "c"]
    assert line.oldest() is None


def test_those_who_left_are_let_go():
    line = Line()
    line.join(waiter("stays", "t", due=500))
    for number in range(1000):
        each = waiter(str(number), str(number % 7), due=number % 13)
        line.join(each)
        line.leave(each)
    assert len(line._arrived) < 200
    assert sum(len(its) for its in line._tenants.values()) < 200
    assert taken(line) == ["stays"]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.booleans()), max_size=60))
def test_everybody_is_taken_once(joins):
    line = Line()
    waiters = []
    for number, (tenant, due, leaves) in enumerate(joins):
        each = waiter(str(number), tenant, due)
        line.join(each)
        waiters.append((each, leaves))
    for each, leaves in waiters:
        if leaves:
            line.leave(each)
    stays = sorted(each.call.name for each, leaves in waiters if not leaves)
    assert line.count == len(stays)
    assert sorted(taken(line)) == stays


@given(
    joins=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.sampled_from(("stay", "leave", "take")))),
    tenant=st.sampled_from("abcde"),
    due=st.integers(0, 9),
)
@example(joins=[("b", 0, "stay"), ("b", 0, "stay"), ("a", 0, "take")], tenant="a", due=5)
@example(joins=[("b", 0, "stay"), ("b", 0, "take"), ("a", 0, "stay"), ("b", 0, "stay")], tenant="a", due=5)
def test_where_one_that_comes_now_would_stand(joins, tenant: str, due: int):
    line = Line()
    for number, (of, at, what) in enumerate(joins):
        each = waiter(str(number), of, at)
        line.join(each)
        if what == "leave":
            line.leave(each)
        elif what == "take":
            line.take()
    ahead = line.ahead_of(tenant, due * S)
    line.join(waiter("new", tenant, due))
    order = [each.call.name for each in line.order()]  # type: ignore[attr-defined]
    assert order == taken(line)
    assert order.index("new") == ahead


def test_a_reserve_is_for_its_class_alone():
    played = Played(4)
    assert [played.come(f"s{number}", "slow") for number in range(4)] == [True, True, False, False]
    assert [played.come(f"f{number}", "fast") for number in range(3)] == [True, True, False]
    assert played.inside == ["f0", "f1", "s0", "s1"]


def test_what_is_not_reserved_is_for_all():
    played = Played(4)
    assert [played.come(f"f{number}", "fast") for number in range(5)] == [True] * 4 + [False]


def test_the_first_class_goes_first():
    played = Played(2)
    played.come("f0", "fast")
    played.come("f1", "fast")
    played.come("s", "slow")
    played.come("f2", "fast")
    played.go("f0")
    assert played.inside == ["f1", "f2"]
    played.go("f1")
    assert played.inside == ["f2", "s"]


def test_a_reserve_is_there_for_its_class_whoever_else_waits():
    played = Played(2, ClassSettings(name="fast"), ClassSettings(name="slow", reserve=0.5))
    played.come("f0", "fast")
    played.come("f1", "fast")
    assert played.inside == ["f0"]
    assert played.come("s0", "slow")
    assert not played.come("s1", "slow")


def test_who_waits_too_long_goes_before_all():
    played = Played(2)
    played.come("f0", "fast")
    played.come("f1", "fast")
    played.come("s", "slow", at=0)
    played.come("f2", "fast", at=29)
    played.go("f0", at=29.9)
    assert played.inside == ["f1", "f2"]
    played.come("f3", "fast", at=30)
    played.go("f1", at=31)
    assert played.inside == ["f2", "s"]
    assert played.desk.promoted == 1
    [rank] = [rank for rank in played.desk.ranks if rank.settings.name == "slow"]
    assert [place.promoted for place in rank.inside.values()] == [True]
    assert played.desk.victims(played.desk.ranks[0]) == []


def test_who_gives_up_a_place():
    played = Played(4)
    for name in ("s0", "s1"):
        played.come(name, "slow")
    played.come("f0", "fast")
    fast, slow = played.desk.ranks
    assert [call.name for call, _ in played.desk.victims(fast)] == ["s1", "s0"], "the latest first"
    assert played.desk.victims(slow) == []
    call = played.calls["s1"]
    played.desk.give_up(call, Waiter(call, "", 0, 0, lambda: None))
    assert played.inside == ["f0", "s0"]
    assert slow.line.count == 1
    played.go("s1")
    assert slow.line.count == 0


def test_a_class_keeps_its_own_reserve():
    played = Played(4, ClassSettings(name="fast", preempts=True), ClassSettings(name="slow", reserve=0.5))
    for name in ("s0", "s1"):
        played.come(name, "slow")
    assert played.desk.victims(played.desk.ranks[0]) == []
    played.come("s2", "slow")
    assert [call.name for call, _ in played.desk.victims(played.desk.ranks[0])] == ["s2", "s1", "s0"]


def test_more_places_are_given_out_and_fewer_send_nobody_away():
    played = Played(1)
    for number in range(3):
        played.come(f"f{number}", "fast")
    played.desk.resize(2, 0)
    assert played.inside == ["f0", "f1"]
    played.desk.resize(1, 0)
    assert played.inside == ["f0", "f1"]
    played.go("f0")
    assert played.inside == ["f1"]
    played.go("f1")
    assert played.inside == ["f2"]


@pytest.mark.parametrize("capacity", [1, 2, 5, 16])
@given(steps=st.lists(st.tuples(st.sampled_from(("fast", "slow", "leave")), st.integers(0, 50)), max_size=80))
def test_places_are_never_more_than_there_are_and_none_is_left_empty(capacity: int, steps):
    played = Played(capacity)
    there: list[str] = []
    for at, (what, which) in enumerate(steps):
        if what == "leave":
            if there:
                played.go(there.pop(which % len(there)), at=at)
        else:
            there.append(f"{at}")
            played.come(f"{at}", what, at=at, tenant=str(which % 3))
        desk = played.desk
        assert len(played.inside) == desk.inside <= capacity
        waiting = sum(rank.line.count for rank in desk.ranks)
        assert desk.inside + waiting == len(there)
        assert not [rank.settings.name for rank in desk.ranks if rank.line.count and desk.fits(rank)]
    played.go(*there, at=1000)
    assert played.desk.inside == 0
    assert played.desk._places == {}
