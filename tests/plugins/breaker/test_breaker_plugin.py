"""How the `breaker` plugin takes workers out and lets them in again, over the real attempt engine."""

from __future__ import annotations

import pytest
from breaking import BROKEN, REFUSED, half_open, scene
from tailrace.plugins.breaker.circuit import SECOND
from tailrace.proxy.fault import timed_out

pytestmark = pytest.mark.interpreted


@scene
async def test_faults_in_a_row_take_a_worker_out(hosts):
    with hosts() as h:
        h.break_down(count=4)
        assert h.answers() == "a"
        h.break_down()
        assert h.answers() == "b"
        assert h.plugins[0].panel.changes["open", "faults"] == 1


@scene
async def test_what_callers_cause_never_does(hosts):
    with hosts() as h:
        h.break_down(count=50, fault=REFUSED)
        assert h.answers() == "a"


@scene
async def test_engines_that_are_full_never_do(hosts):
    """Of vLLM a plain 503 says so, and a burst brings many in a row."""
    busy = b'{"error":{"message":"The engine is currently busy and cannot accept new requests.","code":503}}'
    with hosts() as h:
        for _ in range(20):
            course = h.call()
            worker = course.call.tries[0].worker
            assert worker.name == "a"
            worker.accept()
            worker.status(503, busy)
            assert course.fault.status == 503


@scene
async def test_clients_that_leave_never_do(hosts):
    with hosts() as h:
        for _ in range(20):
            course = h.call()
            assert course.call.tries[0].worker.name == "a"
            course.race.cancel()
        assert h.answers() == "a"


@scene
async def test_RTE_15_every_process_follows_within_a_tick(hosts):
    with hosts(seats=4) as h:
        assert [h.answers(seat) for seat in range(4)] == ["a"] * 4
        h.break_down(2)
        h.tick()
        assert [h.answers(seat) for seat in range(4)] == ["b"] * 4
        for _ in range(20):
            h.tick()
            assert [h.answers(seat) for seat in range(4)] == ["b"] * 4, "no process goes its own way"
        assert sum(plugin.panel.changes["open", "faults"] for plugin in h.plugins) == 1


@scene
async def test_a_process_that_begins_later_knows(hosts):
    with hosts(seats=2) as h:
        h.break_down(0)
        assert h.answers(1) == "a", "its very first call is chosen for before it has met the pool"
        assert h.answers(1) == "b"


@scene
async def test_a_fault_right_after_the_return_counts_at_once(hosts):
    with hosts() as h:
        half_open(h)
        assert h.answers() == "a"
        while h.answers(fault=BROKEN) != "a":
            pass
        verdict = h.circuit().verdict
        assert (verdict.open, verdict.times) == (True, 2)
        assert h.plugins[0].panel.changes["open", "again"] == 1


@scene
async def test_after_a_calm_time_it_begins_anew(hosts):
    with hosts() as h:
        half_open(h)
        assert h.answers(fault=BROKEN) == "a"
        h.tick(10.1)
        h.answers()
        h.tick()
        assert h.answers() == "a"
        for _ in range(7):
            h.tick(5.0)
            h.shares(count=30)
        h.tick(61.0)
        h.break_down()
        assert h.circuit().verdict.times == 1


@scene
async def test_attempts_from_before_a_change_say_nothing(hosts):
    with hosts() as h:
        old = [h.call() for _ in range(3)]
        half_open(h)
        assert h.answers() == "a"
        for course in old:
            worker = course.call.tries[0].worker
            assert worker.name == "a"
            course.call.tries[0]._lose(BROKEN)
        assert not h.circuit().verdict.open
        assert h.circuit().record.bad == 0


@scene
async def test_RTE_05_a_floor_is_kept_and_recovery_is_noticed(hosts):
    """Every worker fails, then all are well: half of them always get calls, and each comes back with its probe."""
    with hosts(workers="abcd") as h:
        for _ in range(60):
            h.answers(fault=BROKEN)
            h.tick()
        fleet = h.fleets[0]
        assert len([worker for worker in fleet if worker.bars]) >= 3
        asked = h.call()
        assert len(asked.call.entry.candidates) == 2
        asked.race.cancel()
        for _ in range(400):
            h.tick()
            h.answers()
        assert not any(worker.bars for worker in fleet)


@scene
async def test_RTE_05_a_pool_of_one(hosts):
    with hosts(workers="a") as h:
        h.break_down(count=12)
        assert h.answers() == "a", "it is all there is"
        h.tick(5.1)
        assert h.answers() == "a"
        assert not h.circuit().verdict.open, "the call was its probe"


@scene
async def test_slowness_beside_the_others(hosts):
    with hosts(workers="ab", slow_samples=5) as h:
        for number in range(30):
            course = h.call()
            worker = course.workers[number % 2]
            attempt = course.call.tries[0]
            if attempt.worker is not worker:
                # The other one this time.
                course.race.cancel()
                attempt.worker.eligible = False
                attempt.worker.changed()
                course = h.call()
            course.call.tries[0].worker.accept()
            h.now += int((2.0 if worker.name == "a" else 0.2) * SECOND)
            course.call.tries[0].worker.answer()
            course.race.cancel()
            course.race.finished(course.race.winner, "won")
            for each in course.workers:
                each.eligible = True
                each.changed()
        for _ in range(20):
            h.tick()
        assert h.circuit().verdict.open
        assert h.plugins[0].panel.changes["open", "slow"] == 1
        assert h.answers() == "b"


@scene
async def test_stalls_without_progress(hosts):
    slow = timed_out("first_content", 30.0)
    with hosts() as h:
        h.break_down(count=2, fault=slow)
        assert h.answers(fault=slow) == "a"
        assert h.answers() == "b"


@scene
async def test_RTE_03_a_busy_worker_whose_streams_go_on_does_not_hang(hosts):
    slow = timed_out("first_content", 30.0)
    with hosts() as h:
        course = h.call()
        worker = course.call.tries[0].worker
        worker.accept()
        worker.answer()
        connection = worker.connections.connections[-1]
        connection.got_bytes, connection.touched = True, 0.0
        worker.connections.busy.add(connection)
        h.break_down(count=8, fault=slow)
        worker.connections.busy.clear()
        h.break_down(count=3, fault=slow)
        assert h.answers() == "b"
        course.race.winner.release()
        course.race.finished(course.race.winner, "won")


@scene
async def test_without_a_board_a_process_decides_for_itself(hosts):
    with hosts() as h:
        panel = h.plugins[0].panel
        panel._board.close()
        panel._board = None
        half_open(h)
        assert h.answers() == "a"
        assert not h.circuit().verdict.open


@scene
async def test_a_board_that_is_held_for_too_long_does_not_stop_a_process(hosts):
    with hosts(seats=2) as h:
        h.answers(1)
        with h.plugins[1].panel._board.locked() as mine:
            assert mine
            h.break_down(0)
            assert h.answers(0) == "b"


@scene
async def test_workers_that_are_gone_are_forgotten(hosts):
    with hosts() as h:
        h.break_down()
        worker = h.fleets[0][0]
        worker.pools = []
        for _ in range(20):
            h.tick()
        assert worker not in h.plugins[0].panel.circuits
        assert not worker.bars


@scene
async def test_two_processes_that_find_the_same_decide_it_once(hosts):
    with hosts(seats=2) as h:
        for _ in range(4):
            h.answers(0, BROKEN)
            h.answers(1, BROKEN)
        h.answers(0, BROKEN)
        h.answers(1, BROKEN)
        assert h.circuit(0).verdict == h.circuit(1).verdict
        assert h.circuit(0).verdict.times == 1
        assert [plugin.panel.changes["open", "faults"] for plugin in h.plugins] == [1, 0]


@scene
async def test_successes_from_before_a_change_do_not_let_it_in_sooner(hosts):
    with hosts(ramp=0.0) as h:
        old = h.call()
        half_open(h)
        assert h.answers() == "a"
        good = h.circuit().record.good
        h.tick(1.0)
        worker = old.call.tries[0].worker
        worker.accept()
        worker.answer()
        assert old.winner is not None
        assert h.circuit().record.good == good
        old.race.cancel()
        old.race.finished(old.race.winner, "won")
