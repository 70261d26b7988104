"""Attempt policies: back-off, degraded answers, nominations, and the moment of the commit."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from racers import ROLE
from racing import move_on, policy, racing
from tailrace.proxy.fault import timed_out
from tailrace.proxy.plugin import Target
from tailrace.proxy.reply import Reply

pytestmark = pytest.mark.interpreted


def after(seconds, **rest):
    return policy(next_target=lambda *_: Target(delay=seconds), **rest)


@racing
async def test_back_off_comes_before_the_attempt(course):
    c = course(after(0.02)).start()
    c.a.accept()
    c.a.lose()
    assert (len(c.call.tries), c.fault, c.winner) == (1, None, None)
    await asyncio.sleep(0.04)
    c.b.accept()
    c.b.answer()
    assert c.winner.worker is c.b
    assert c.finish() == [(1, "failed"), (2, "won")]


@racing
async def test_HDG_07_client_leaves_during_a_back_off(course):
    c = course(after(0.02)).start()
    c.a.accept()
    c.a.lose()
    c.race.cancel()
    await asyncio.sleep(0.04)
    assert len(c.call.tries) == 1
    assert c.finish() == [(1, "failed")]


@racing
async def test_limit_of_the_call_ends_a_back_off(course):
    c = course(after(0.02)).start()
    c.a.accept()
    c.a.lose()
    c.race.expire(timed_out("total", 1.0))
    await asyncio.sleep(0.04)
    assert c.fault.kind == "total_timeout"
    assert len(c.call.tries) == 1
    assert c.finish() == [(1, "failed")]


@racing
async def test_nobody_is_left_when_the_back_off_is_over(course):
    c = course(after(0.02)).start()
    c.a.accept()
    c.a.lose()
    c.workers.clear()
    await asyncio.sleep(0.2)
    assert c.fault.kind == "connection_lost", "what happened is told, not that nobody is left"
    assert [attempt.number for attempt in c.call.tries] == [1]


@racing
async def test_one_back_off_at_a_time(course):
    """The other of two running attempts fails while a back-off waits: there is no second one."""
    c = course(
        policy(
            patience=lambda call, tries: 0.01 if len(tries) == 1 else None, next_target=lambda *_: Target(delay=0.03)
        ),
        workers="abcd",
    ).start()
    c.a.accept()
    await asyncio.sleep(0.02)
    c.b.accept()
    c.a.lose()
    c.b.lose()
    assert c.fault is None
    await asyncio.sleep(0.05)
    assert [attempt.why for attempt in c.call.tries] == ["first", "hedge", "retry"]
    assert c.finish() == [(1, "failed"), (2, "failed"), (3, "cancelled")]


@racing
async def test_hedge_wins_while_a_back_off_waits(course):
    c = course(
        policy(
            patience=lambda call, tries: 0.01 if len(tries) == 1 else None, next_target=lambda *_: Target(delay=0.02)
        ),
        workers="abc",
    ).start()
    c.a.accept()
    await asyncio.sleep(0.02)
    c.b.accept()
    c.a.lose()
    c.b.answer()
    await asyncio.sleep(0.04)
    assert c.winner.worker is c.b
    assert c.finish() == [(1, "failed"), (2, "won")]


@racing
async def test_degraded_answer_comes_in_place_of_an_attempt(course):
    reply = Reply(200, b"{}", source="degraded")
    c = course(policy(next_target=lambda *_: Target(reply=reply))).start()
    c.a.accept()
    c.a.lose()
    assert c.instead is reply
    assert c.finish() == [(1, "failed")]


@racing
async def test_degraded_answer_is_not_given_while_another_attempt_runs(course):
    c = course(
        policy(
            patience=lambda call, tries: 0.01 if len(tries) == 1 else None,
            next_target=lambda *_: Target(reply=Reply(200, b"{}")),
        )
    ).start()
    c.a.accept()
    await asyncio.sleep(0.02)
    c.b.accept()
    c.a.lose()
    assert c.instead is None
    c.b.answer()
    assert c.winner.worker is c.b
    assert c.finish() == [(1, "failed"), (2, "won")]


@racing
async def test_policies_are_asked_where_there_was_nobody_to_ask(course):
    seen = []
    spare = []

    def elsewhere(call, tries, fault):
        seen.append((list(tries), fault.kind))
        return Target(pool=SimpleNamespace(eligible=spare), why="fallback")

    c = course(policy(next_target=elsewhere), workers="abc")
    spare.append(c.workers.pop())
    worker = spare[0]
    c.call.entry.candidates = []
    c.start()
    assert seen == [([], "no_worker")]
    worker.accept()
    worker.answer()
    assert (c.winner.worker, c.winner.why, c.winner.number) == (worker, "fallback", 1)
    c.finish()


@racing
async def test_policy_that_names_nobody_is_not_asked_for_ever(course):
    asked = []

    def nowhere(call, tries, fault):
        asked.append(fault.kind)
        return Target(pool=SimpleNamespace(eligible=[]))

    c = course(policy(next_target=nowhere)).start()
    c.a.accept()
    c.a.lose()
    assert asked == ["connection_lost", "no_worker", "no_worker"]
    assert c.fault.kind == "connection_lost"
    assert c.finish() == [(1, "failed")]


@racing
async def test_commit_is_told_once_and_of_the_winner_only(course):
    told = []
    c = course(
        policy(
            patience=lambda call, tries: 0.01 if len(tries) == 1 else None,
            on_commit=lambda call, attempt: told.append((attempt.number, bool(attempt.first_content_ns))),
        )
    ).start()
    c.a.accept()
    c.a.say(ROLE)
    await asyncio.sleep(0.03)
    c.b.accept()
    assert told == []
    c.b.answer()
    c.b.answer()
    assert told == [(2, True)]
    assert c.finish() == [(1, "cancelled"), (2, "won")]
    assert told == [(2, True)]


@racing
async def test_failing_on_commit_costs_nothing_but_a_line(course):
    def broken(*_):
        raise ValueError("on_commit")

    c = course(policy(on_commit=broken)).start()
    c.a.accept()
    c.a.answer()
    assert c.failures == ["test"]
    assert c.finish() == [(1, "won")]


@racing
async def test_nominated_workers_are_among_those_that_are_drawn(course):
    seen = []
    named = []

    def scores(call, found):
        seen.append(list(found))
        return [1.0] * len(found)

    c = course(
        policy(nominate=lambda call, eligible: named, score_workers=scores),
        workers="abcdefghijklmnopqrst",
    )
    named += c.workers[-2:]
    for _ in range(10):
        c.call.tries.clear()
        assert c.race._start("first", None, fresh=False)
    assert all(len(set(found)) == 8 and set(named) <= set(found) for found in seen)


@pytest.mark.parametrize(
    ("told", "trusted", "more"),
    [
        (None, True, 2),
        (b"1", True, 2),
        (b"2", True, 1),
        (b"3", True, 0),
        (b"9", True, 0),
        (b"x", True, 2),
        (b"", True, 2),
        (b"3", False, 2),
    ],
)
def test_HDG_05_attempts_of_the_hop_before_count(told, trusted, more, monkeypatch):
    @racing
    async def body(course):
        c = course(policy(next_target=move_on), workers="abcd")
        c.call.peer.trusted = trusted
        c.call.head.get = lambda name: told if name == b"x-tailrace-attempt" else None
        c.start()
        for worker in c.workers:
            if worker.connections.opening:
                worker.accept()
                worker.lose()
        assert len(c.call.tries) == 1 + more
        c.finish()

    body(monkeypatch)
