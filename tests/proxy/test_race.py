"""The attempt engine: retries, hedges, fallbacks, and that every attempt ends exactly once."""

from __future__ import annotations

import pytest
from fakes import chat_chunk, event, run
from racers import ROLE
from racing import Course, move_on, policy, racing
from tailrace.proxy.fault import Fault, Whose, bad_answer, most_useful, no_worker, timed_out
from tailrace.proxy.plugin import EXCLUDED
from tailrace.proxy.race import MAX_TRIES

pytestmark = pytest.mark.interpreted


@racing
async def test_one_attempt_wins(course):
    c = course().start()
    assert c.a.inflight == 1
    c.a.accept()
    c.a.say(ROLE)
    assert c.winner is None
    c.a.answer()
    assert c.winner.worker is c.a
    assert c.a.inflight == 1, "counted until the relay is over"
    assert c.finish() == [(1, "won")]


@racing
async def test_resting_connection_is_used_at_once(course):
    c = course()
    c.a.connections.resting = 1
    c.start()
    c.a.answer()
    assert c.winner.worker is c.a
    assert c.finish() == [(1, "won")]


@racing
async def test_one_retry_where_nothing_was_sent(course):
    c = course().start()
    c.a.refuse()
    assert (c.a.inflight, c.b.inflight) == (0, 1)
    c.b.refuse()
    assert c.fault.kind == "connect_failed"
    assert [attempt.why for attempt in c.call.tries] == ["first", "retry"]
    assert c.finish() == [(1, "failed"), (2, "failed")]


@racing
async def test_stale_connection_is_retried_on_a_new_one(course):
    c = course(workers="a")
    c.a.connections.resting = 2
    c.start()
    c.a.lose(sent=False)
    assert c.a.connections.resting == 1, "no other resting connection is trusted"
    c.a.accept()
    c.a.answer()
    assert c.finish() == [(1, "failed"), (2, "won")]


@racing
async def test_no_retry_once_anything_was_sent(course):
    c = course().start()
    c.a.accept()
    c.a.lose(sent=True)
    assert c.fault.kind == "connection_lost"
    assert c.finish() == [(1, "failed")]


@racing
async def test_policy_moves_on_up_to_the_bound(course):
    c = course(policy(next_target=move_on), workers="abcd").start()
    for worker in c.workers[:MAX_TRIES]:
        worker.accept()
        worker.lose()
    assert c.fault is not None
    assert [attempt.worker.name for attempt in c.call.tries] == ["a", "b", "c"]
    assert c.finish() == [(1, "failed"), (2, "failed"), (3, "failed")]


@racing
async def test_attempts_of_other_hops_count(course):
    c = course(policy(next_target=move_on), workers="abcd")
    c.call.tried_before = 2
    c.start()
    c.a.refuse()
    assert c.fault is not None
    assert c.finish() == [(1, "failed")]


@pytest.mark.parametrize("opening", [True, False])
def test_client_leaves(opening, monkeypatch):
    async def body():
        c = Course(monkeypatch).start()
        if not opening:
            c.a.accept()
        c.race.cancel()
        assert c.a.connections.cancelled == opening
        assert c.finish() == [(1, "cancelled")]

    run(body())


@racing
async def test_limit_of_the_whole_call(course):
    c = course(policy(next_target=move_on)).start()
    c.a.accept()
    c.race.expire(timed_out("total", 1.0))
    assert c.fault.kind == "total_timeout"
    assert c.finish() == [(1, "cancelled")]


@racing
async def test_limit_passes_behind_the_commit(course):
    c = course().start()
    c.a.accept()
    c.a.answer()
    c.race.expire(timed_out("total", 1.0))
    assert c.winner is not None
    assert c.finish() == [(1, "won")]


@racing
async def test_first_content_limit_is_the_attempts(course):
    c = course(policy(next_target=move_on)).start()
    c.a.accept()
    c.a.sink.on_quiet(9.0, 9.0)
    assert c.b.inflight == 0
    c.a.sink.on_quiet(11.0, 11.0)
    assert (c.a.inflight, c.b.inflight) == (0, 1)
    assert c.finish() == [(1, "failed"), (2, "cancelled")]


@racing
async def test_no_worker(course):
    excluding = policy(score_workers=lambda call, found: [EXCLUDED] * len(found))
    for c in (course(excluding), course(excluding, workers="a"), course(policy(on_chosen=lambda *_: False))):
        c.start()
        assert (c.fault.kind, c.fault.status) == ("no_worker", 503)
        assert c.call.tries == []
        c.finish()
    c = course()
    c.workers.clear()
    assert c.start().fault.kind == "no_worker"


@racing
async def test_pinned_call_goes_nowhere_else(course):
    c = course(policy(next_target=move_on))
    c.call.pinned = c.b
    c.start()
    c.b.refuse()
    assert (c.a.inflight, c.b.inflight) == (0, 1)
    c.b.reachable = False
    c.b.refuse()
    assert c.fault is not None
    assert c.finish() == [(1, "failed"), (2, "failed")]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ([event({"error": {"message": "x", "code": 500}})], "error_event"),
        ([ROLE, chat_chunk(finish="abort")], "false_end"),
        ([ROLE, event("[DONE]")], "false_end"),
    ],
)
def test_streams_that_fail_before_content(said, kind, monkeypatch):
    async def body():
        c = Course(monkeypatch).start()
        c.a.accept()
        c.a.say(*said)
        assert c.fault.kind == kind
        assert c.finish() == [(1, "failed")]

    run(body())


CLIENTS = Fault(kind="http_error", whose=Whose.CLIENT, status=400, code="x", message="x")
BUSY = Fault(kind="http_error", whose=Whose.ENGINE, status=429, code="x", message="x")
LAST = bad_answer("x")


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ([LAST], LAST),
        ([no_worker("m"), LAST], LAST),
        ([BUSY, LAST], BUSY),
        ([BUSY, CLIENTS, LAST], CLIENTS),
        ([LAST, CLIENTS], CLIENTS),
    ],
)
def test_most_useful(faults, told):
    assert most_useful(faults) is told
