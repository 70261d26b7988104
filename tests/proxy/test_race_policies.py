"""Attempt policies: hedges, judges, choices, and policies that fail or refuse."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from fakes import chat_chunk, run
from racers import ROLE
from racing import Course, move_on, policy, racing
from tailrace.proxy.fault import Reject
from tailrace.proxy.plugin import EXCLUDED, Target, Verdict

pytestmark = pytest.mark.interpreted


@racing
async def test_first_policy_that_names_a_target_decides(course):
    chosen = []
    c = course(
        policy(next_target=lambda *_: None),
        policy(next_target=lambda *_: Target(worker=chosen[0])),
        policy(next_target=lambda *_: pytest.fail("asked although another has decided")),
        workers="abc",
    )
    chosen.append(c.workers[2])
    c.start()
    c.a.accept()
    c.a.lose()
    c.c.accept()
    c.c.answer()
    assert c.winner.worker is c.c
    assert c.finish() == [(1, "failed"), (2, "won")]


@racing
async def test_target_pool(course):
    eligible = []
    c = course(policy(next_target=lambda *_: Target(pool=SimpleNamespace(eligible=eligible))), workers="abc")
    eligible.append(c.workers[2])
    c.start()
    c.a.refuse()
    assert c.c.inflight == 1
    assert c.finish() == [(1, "failed"), (2, "cancelled")]


@racing
async def test_every_policy_must_allow(course):
    asked = []
    c = course(
        policy(next_target=move_on, allow=lambda call, tries, why: asked.append(why) or True),
        policy(allow=lambda call, tries, why: False),
    ).start()
    c.a.refuse()
    assert asked == ["retry"]
    assert c.fault.kind == "connect_failed"
    assert c.finish() == [(1, "failed")]


@pytest.mark.parametrize("first", ["a", "b"])
def test_hedge(first, monkeypatch):
    """A slow attempt gets company; the first content wins, the other is cancelled."""

    async def body():
        c = Course(monkeypatch, policy(patience=lambda call, tries: 0.01 if len(tries) == 1 else None)).start()
        c.a.accept()
        await asyncio.sleep(0.03)
        c.b.accept()
        assert (c.a.inflight, c.b.inflight) == (1, 1)
        winner, loser = (c.a, c.b) if first == "a" else (c.b, c.a)
        winner.answer()
        assert c.winner.worker is winner
        assert loser.connections.connections[-1].closed
        assert (winner.inflight, loser.inflight) == (1, 0)
        assert [attempt.why for attempt in c.call.tries] == ["first", "hedge"]
        assert c.finish() == sorted([(c.winner.number, "won"), (3 - c.winner.number, "cancelled")])

    run(body())


@racing
async def test_hedge_is_not_started_after_a_commit_or_an_end(course):
    waits = policy(patience=lambda call, tries: 0.01)
    won, lost, left = course(waits).start(), course(waits).start(), course(waits).start()
    won.a.accept()
    won.a.answer()
    lost.a.accept()
    lost.a.lose()
    left.race.cancel()
    await asyncio.sleep(0.03)
    assert [len(c.call.tries) for c in (won, lost, left)] == [1, 1, 1]
    assert [c.finish() for c in (won, lost, left)] == [[(1, "won")], [(1, "failed")], [(1, "cancelled")]]


@racing
async def test_smallest_patience_wins_and_none_is_none(course):
    c = course(
        policy(patience=lambda *_: 9.0), policy(patience=lambda *_: None), policy(patience=lambda *_: 0.01)
    ).start()
    await asyncio.sleep(0.03)
    assert len(c.call.tries) >= 2
    c.race.cancel()
    assert {end for _, end in c.finish()} == {"cancelled"}


@racing
async def test_one_of_two_running_attempts_may_fail(course):
    c = course(policy(patience=lambda call, tries: 0.01 if len(tries) == 1 else None)).start()
    c.a.accept()
    await asyncio.sleep(0.03)
    c.b.accept()
    c.a.lose()
    assert c.fault is None
    c.b.answer()
    assert c.winner.worker is c.b
    assert c.finish() == [(1, "failed"), (2, "won")]


@racing
async def test_both_running_attempts_fail(course):
    c = course(policy(patience=lambda call, tries: 0.01 if len(tries) == 1 else None)).start()
    c.a.accept()
    await asyncio.sleep(0.03)
    c.b.accept()
    c.b.status(429)
    c.a.lose()
    assert c.fault.status == 429, "a hint when to come again is worth more than the last fault"
    assert c.finish() == [(1, "failed"), (2, "failed")]


@pytest.mark.parametrize("verdict", list(Verdict))
def test_judge(verdict, monkeypatch):
    """NEXT fails the attempt, WAIT holds back what the core would commit, COMMIT shows what it would hold back."""

    async def body():
        seen = []

        def judge(call, attempt, prefix):
            seen.append(len(prefix))
            return verdict

        c = Course(monkeypatch, policy(judge=judge, next_target=move_on)).start()
        c.a.accept()
        if verdict is Verdict.COMMIT:
            c.a.say(ROLE)
            assert c.winner is None, "the core's own rule is one of the votes"
            c.a.answer()
            assert c.winner.worker is c.a
            assert seen == [1, 2]
        elif verdict is Verdict.WAIT:
            c.a.say(chat_chunk("a"), chat_chunk("b"))
            assert c.winner is None
            assert seen == [1, 2]
            c.a.say(b": " + b"x" * 70_000 + b"\n\n")
            assert c.winner.worker is c.a, "the bound of what is held back"
        else:
            c.a.say(chat_chunk("a"))
            assert c.b.inflight == 1
        c.finish()

    run(body())


@racing
async def test_on_chosen_asks_for_another_choice(course):
    asked = []

    def on_chosen(call, attempt):
        asked.append(attempt.worker.name)
        return attempt.worker.name == "c"

    c = course(policy(on_chosen=on_chosen), workers="abc").start()
    assert asked == ["a", "b", "c"]
    assert [worker.inflight for worker in c.workers] == [0, 0, 1]
    assert [attempt.number for attempt in c.call.tries] == [1]
    assert c.finish() == [(1, "cancelled")]


@racing
async def test_scores_are_weighted_and_exclusion_is_final(course):
    c = course(
        policy(score_workers=lambda call, found: [0.0, 1.0, 1.0]),
        policy(score_workers=lambda call, found: [1.0, EXCLUDED, 1.0]),
        workers="abc",
    ).start()
    assert c.c.inflight == 1
    c.finish()


@pytest.mark.parametrize("phase", ["on_chosen", "score_workers", "patience", "next_target", "allow"])
def test_failing_policy(phase, monkeypatch):
    """Its exception ends the call; nothing stays counted."""

    def broken(*_):
        raise ValueError(phase)

    async def body():
        c = Course(monkeypatch, policy(**{phase: broken})).start()
        if phase in ("next_target", "allow"):
            c.a.refuse()
        assert c.fault.kind == "internal"
        assert c.failures == ["test"]
        c.finish()

    run(body())


@racing
async def test_policy_may_refuse(course):
    def refuse(*_):
        raise Reject(402, "insufficient_quota", "no more")

    c = course(policy(next_target=refuse)).start()
    c.a.refuse()
    assert (c.fault.status, c.fault.code) == (402, "insufficient_quota")
    assert c.finish() == [(1, "failed")]


@racing
async def test_failing_hedge_ends_the_call(course):
    def broken(call, tries, why):
        raise ValueError(why)

    c = course(policy(patience=lambda *_: 0.01, allow=broken)).start()
    c.a.accept()
    await asyncio.sleep(0.03)
    assert c.fault.kind == "internal"
    assert c.finish() == [(1, "cancelled")]
