"""An attempt that keeps a call waiting is moved to another worker, where policies want that and allow it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from racers import Entry
from racing import move_on, policy, racing
from tailrace.proxy.fault import Reject, connect_failed, timed_out
from tailrace.proxy.plugin import EXCLUDED, Target
from tailrace.proxy.reply import Reply

pytestmark = pytest.mark.interpreted

SLOW = timed_out("first_token", 0.5)


@racing
async def test_move_ends_the_slow_attempt_first(course):
    order = []
    c = course(
        policy(next_target=move_on, allow=lambda call, tries, why: order.append(why) or True),
        policy(on_attempt_end=lambda call, attempt, end: order.append((attempt.number, attempt.fault.kind, end))),
    ).start()
    c.a.accept()
    c.race.move(c.call.tries[0], SLOW)
    assert order == ["retry", (1, "first_token_timeout", "failed")]
    assert c.a.connections.connections[0].closed
    c.b.accept()
    c.b.answer()
    assert c.winner.worker is c.b
    c.race.move(c.call.tries[0], SLOW)
    assert c.finish() == [(1, "failed"), (2, "won")]


@racing
async def test_move_while_connecting(course):
    c = course(policy(next_target=move_on)).start()
    c.race.move(c.call.tries[0], SLOW)
    assert c.a.connections.cancelled == 1
    assert c.b.inflight == 1
    assert c.finish() == [(1, "failed"), (2, "cancelled")]


@racing
async def test_slow_attempt_goes_on_where_it_cannot_be_moved(course):
    """No policy that wants it, one that forbids it, nobody else, a pinned call, a policy that has only a reply."""
    reply = policy(next_target=lambda *_: Target(reply=Reply(200, b"{}")))
    pinned = course(policy(next_target=move_on))
    pinned.call.pinned = pinned.a
    for c in (
        course(),
        course(policy(next_target=move_on), policy(allow=lambda *_: False)),
        course(policy(next_target=move_on), workers="a"),
        pinned,
        course(reply),
    ):
        c.start()
        c.a.accept()
        c.race.move(c.call.tries[0], SLOW)
        assert len(c.call.tries) == 1
        c.a.answer()
        assert c.winner.worker is c.a
        assert c.finish() == [(1, "won")]


@racing
async def test_slow_attempt_goes_on_where_nobody_else_can_be_had(course):
    """Those who are left are excluded, taken by nobody's leave, or are the slow one itself; none of it is a fault."""
    named, among = [], []
    excluding = policy(score_workers=lambda call, candidates: [EXCLUDED if w.name == "b" else 1.0 for w in candidates])
    for c in (
        course(policy(next_target=move_on), excluding),
        course(policy(next_target=move_on, on_chosen=lambda call, attempt: attempt.number == 1)),
        course(policy(next_target=lambda *_: Target(worker=named[0]))),
        course(policy(next_target=lambda *_: Target(pool=SimpleNamespace(eligible=among)))),
    ):
        named[:] = among[:] = [c.a]
        c.start()
        c.a.accept()
        c.race.move(c.call.tries[0], SLOW)
        assert [attempt.worker for attempt in c.call.tries] == [c.a]
        assert c.call.tries[0].fault is None
        assert (c.a.inflight, c.b.inflight) == (1, 0)
        c.a.fail(connect_failed("later"))
        assert c.fault is None or c.fault.kind == "connect_failed"
        assert c.finish()[0] == (1, "failed")


@racing
async def test_what_a_fallback_led_to_is_moved_there(course):
    """A plain target means where the attempt is, and the call's own model only where nobody else is there."""
    targets = []
    for workers, second in (("abcd", "d"), ("abc", "b")):
        c = course(policy(next_target=lambda call, tries, fault: targets.pop(0)), workers=workers)
        own, other = c.workers[:2], c.workers[2:]
        c.call.entry = Entry(own)
        there = Entry(other)
        targets[:] = [Target(pool=there.pool, why="fallback"), Target()]
        c.start()
        c.a.refuse()
        c.c.accept()
        c.race.move(c.call.tries[1], SLOW)
        assert [attempt.worker.name for attempt in c.call.tries] == ["a", "c", second]
        assert c.finish() == [(1, "failed"), (2, "failed"), (3, "cancelled")]


@racing
async def test_policy_may_refuse_instead_of_a_move(course):
    def refuse(*_):
        raise Reject(402, "insufficient_quota", "no more")

    c = course(policy(next_target=refuse)).start()
    c.a.accept()
    c.race.move(c.call.tries[0], SLOW)
    assert c.fault.status == 402
    assert c.finish() == [(1, "cancelled")]
