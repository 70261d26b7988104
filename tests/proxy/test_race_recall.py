"""A call that has shown nothing can be taken back, and begun anew later."""

from __future__ import annotations

import asyncio

import pytest
from racers import ROLE
from racing import policy, racing
from tailrace.proxy.fault import PREEMPTED, no_worker
from tailrace.proxy.race import MAX_TRIES

pytestmark = pytest.mark.interpreted


@racing
async def test_what_runs_ends_and_begins_anew(course):
    c = course().start()
    c.a.accept()
    c.a.say(ROLE)
    connection = c.a.connections.connections[-1]
    assert c.race.recall(PREEMPTED)
    assert connection.closed
    assert (c.a.inflight, c.b.inflight, c.race.settled) == (0, 0, False)
    c.race.resume()
    assert c.b.inflight == 1, "another worker where there is one"
    c.b.accept()
    c.b.answer()
    assert c.winner.worker is c.b
    assert [(attempt.why, attempt.fault and attempt.fault.kind) for attempt in c.call.tries] == [
        ("first", "preempted"),
        ("requeue", None),
    ]
    assert c.finish() == [(1, "cancelled"), (2, "won")]


@racing
async def test_one_that_is_still_connecting(course):
    c = course().start()
    assert c.race.recall(PREEMPTED)
    assert c.a.connections.cancelled == 1
    c.race.resume()
    c.b.accept()
    c.b.answer()
    assert c.finish() == [(1, "cancelled"), (2, "won")]


@racing
async def test_what_is_shown_stays(course):
    c = course().start()
    c.a.accept()
    c.a.answer()
    assert not c.race.recall(PREEMPTED)
    assert c.a.inflight == 1
    assert c.finish() == [(1, "won")]


@racing
async def test_the_last_try_is_not_taken_back(course):
    c = course()
    c.call.tried_before = MAX_TRIES - 1
    c.start()
    assert not c.race.recall(PREEMPTED)
    c.a.accept()
    c.a.answer()
    assert c.finish() == [(1, "won")]


@racing
async def test_the_call_may_end_meanwhile(course):
    c = course().start()
    assert c.race.recall(PREEMPTED)
    c.race.expire(no_worker("m"))
    assert c.fault.kind == "no_worker"
    c.race.resume()
    assert len(c.call.tries) == 1, "nothing begins after the end"
    assert c.finish() == [(1, "cancelled")]


@racing
async def test_patience_is_for_what_runs(course):
    c = course(policy(patience=lambda call, tries: 0.001 if len(tries) == 1 else None)).start()
    c.a.accept()
    assert c.race.recall(PREEMPTED)
    await asyncio.sleep(0.01)
    assert len(c.call.tries) == 1
    c.race.cancel()
    assert c.finish() == [(1, "cancelled")]


@racing
async def test_nobody_is_left(course):
    c = course().start()
    assert c.race.recall(PREEMPTED)
    c.call.entry.candidates = []
    c.race.resume()
    assert c.fault.kind == "no_worker"
    assert c.finish() == [(1, "cancelled")]
