"""Suspects and those that are given up: what becomes of their calls, and the figure of a death."""

from __future__ import annotations

import pytest
from quiet_hosts import BEAT, Hosts, Line, doubts
from tailrace.proxy.fault import Fault
from tailrace.proxy.fleet import SILENT, Pool
from tailrace.proxy.sweep import TICK

pytestmark = pytest.mark.interpreted  # with stand-ins, which compiled code refuses


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


def test_who_waits_is_told_once_and_what_runs_when_all_is_lost(hosts: Hosts) -> None:
    told: list[tuple[bool, bool]] = []

    def doubted(fault: Fault, lost: bool) -> None:
        told.append((fault.sent, lost))

    hosts.worker.connections.connecting.append(doubted)  # type: ignore[attr-defined]
    hosts.silence.promised(hosts.worker, BEAT)
    waits, runs = hosts.waiting(), hosts.stream()
    hosts.tick(20)
    assert doubts(waits) == doubts(runs) == [("suspect", False)]
    assert told == [(False, False)]
    assert not hosts.given_up
    hosts.tick(8)
    assert hosts.given_up
    assert doubts(waits) == doubts(runs) == [("suspect", False), ("suspect", True)]
    assert hosts.verified == [hosts.worker]
    hosts.tick(40)
    assert len(doubts(runs)) == 2
    hosts.silence.heard(hosts.worker)
    assert not hosts.suspect
    assert not hosts.given_up


def test_a_host_that_is_lost_with_its_streams_is_left_within_400_ms(hosts: Hosts) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    lines = [hosts.stream() for _ in range(3)]
    for _ in range(20):
        hosts.silence.heard(hosts.worker)
        hosts.flow(2, *lines)
    waits = hosts.waiting()
    hosts.tick(4)
    assert hosts.pool.eligible == hosts.workers[1:]
    assert doubts(waits) == []
    hosts.tick(3)
    assert doubts(waits) == [("suspect", False)]


@pytest.mark.parametrize("beats", [False, True])
def test_an_engine_may_pause_for_a_step_with_a_large_prefill(hosts: Hosts, beats: bool) -> None:
    """What waits may be the very prefill that streams wait for, and a sidecar that is well does not know."""
    hosts.silence.promised(hosts.worker, BEAT if beats else 0.0)
    lines = [hosts.stream() for _ in range(3)]
    hosts.flow(40, *lines)
    waits = hosts.waiting()
    hosts.tick(10, beats=beats)
    assert hosts.pool.eligible == hosts.workers[1:]
    assert doubts(waits) == []
    hosts.tick(4, beats=beats)
    assert doubts(waits) == [("suspect", False)]
    assert not hosts.given_up
    hosts.flow(1, *lines)
    hosts.tick(1, beats=beats)
    assert hosts.pool.eligible == hosts.workers


@pytest.mark.parametrize("beats", [False, True])
def test_connections_that_break_as_streams_fall_silent_move_what_waits_at_once(hosts: Hosts, beats: bool) -> None:
    hosts.silence.promised(hosts.worker, BEAT if beats else 0.0)
    for _ in range(3):
        hosts.stream()
    waits = hosts.waiting()
    hosts.tick(4, beats=beats)
    assert hosts.suspect
    assert doubts(waits) == []
    hosts.silence.unreached(hosts.worker)
    assert doubts(waits) == [("suspect", False)]


def test_a_sidecar_that_is_well_vouches_for_streams_for_a_while(hosts: Hosts) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    for _ in range(3):
        hosts.stream()
    hosts.tick(60, beats=True)
    assert hosts.suspect
    assert not hosts.given_up
    hosts.tick(10, beats=True)
    assert hosts.given_up


def test_the_given_up_get_calls_only_where_nobody_else_is_left() -> None:
    hosts = Hosts(3, after=0.5)
    for worker in hosts.workers[:2]:
        hosts.silence.promised(worker, BEAT)
    hosts.tick(6)
    # Two of three would be too many to take out for a suspicion.
    assert hosts.pool.eligible == [hosts.workers[0], hosts.workers[2]]
    hosts.tick(12)
    assert hosts.pool.eligible == [hosts.workers[2]]
    hosts.silence.promised(hosts.workers[2], BEAT)
    hosts.tick(20)
    assert hosts.pool.eligible


def test_a_fault_of_one_keeps_no_other_from_being_looked_at(hosts: Hosts, caplog: pytest.LogCaptureFixture) -> None:
    told: list[bool] = []

    def doubted(fault: Fault, lost: bool) -> None:
        raise KeyError("one")

    def doubted_too(fault: Fault, lost: bool) -> None:
        told.append(lost)

    hosts.worker.connections.connecting.extend([doubted, doubted_too])  # type: ignore[attr-defined]
    for worker in hosts.workers:
        hosts.silence.promised(worker, BEAT)
    hosts.tick(8)
    assert all("suspect" in worker.bars for worker in hosts.workers)
    assert hosts.worker.name in caplog.text
    assert told == [False]


def test_a_stream_that_fails_keeps_no_other_from_hearing_of_it(
    hosts: Hosts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(line: Line, fault: Fault, lost: bool) -> None:
        line.sink.on_doubt(fault, lost)
        raise KeyError("one")

    monkeypatch.setattr(Line, "doubt", fails)
    hosts.silence.promised(hosts.worker, BEAT)
    lines = [hosts.stream(), hosts.stream()]
    hosts.tick(8)
    assert [doubts(line) for line in lines] == [[("suspect", False)]] * 2
    assert hosts.worker.name in caplog.text


# Many at once.


def test_lists_are_built_anew_once_for_all_that_fall_silent_and_once_for_all_that_are_heard_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, built, rebuild = Hosts(8), [0], Pool.rebuild

    def counted(pool: Pool) -> None:
        built[0] += 1
        rebuild(pool)

    monkeypatch.setattr(Pool, "rebuild", counted)
    for worker in hosts.workers[:4]:
        hosts.silence.promised(worker, BEAT)
    hosts.tick(6)
    assert built == [1]
    assert hosts.pool.eligible == hosts.workers[4:]
    hosts.tick(21)
    assert all(SILENT in worker.bars for worker in hosts.workers[:4])
    assert built == [2]
    for worker in hosts.workers[:4]:
        hosts.silence.heard(worker)
    hosts.tick(1)
    assert built == [3]
    assert hosts.pool.eligible == hosts.workers


def test_who_leaves_one_suspect_finds_the_others_barred() -> None:
    hosts, found = Hosts(4), []

    def doubted(fault: Fault, lost: bool) -> None:
        found.append(hosts.pool.eligible)

    for worker in hosts.workers[:2]:
        hosts.silence.promised(worker, BEAT)
        worker.connections.connecting.append(doubted)  # type: ignore[attr-defined]
    hosts.tick(6)
    assert found == [hosts.workers[2:]] * 2


def test_who_is_found_to_be_gone_between_two_ticks_gets_no_call_from_then_on(hosts: Hosts) -> None:
    hosts.silence.unreached(hosts.worker)
    assert hosts.pool.eligible == hosts.workers[1:]


# Death, as a figure.


def test_how_long_after_its_last_sign_of_life_a_dead_worker_got_an_attempt(hosts: Hosts) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    hosts.tick(4, beats=True)
    hosts.silence.heard(hosts.worker)
    last = hosts.now
    hosts.tick(4)
    hosts.worker.last_sent_ns = round(hosts.now * 1e9)
    hosts.tick(10)
    # It may come back yet.
    assert hosts.worker.sent_after_death != hosts.worker.sent_after_death
    hosts.tick(20)
    assert hosts.worker.sent_after_death == pytest.approx(last + 4 * TICK - last)
    hosts.silence.heard(hosts.worker)
    hosts.worker.last_sent_ns = round(hosts.now * 1e9)
    hosts.tick(2, beats=True)
    assert hosts.worker.died == 0.0
    assert hosts.worker.sent_after_death == pytest.approx(4 * TICK)


def test_who_is_looked_at_no_longer_is_let_in(hosts: Hosts) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    hosts.tick(40)
    assert hosts.given_up
    hosts.silence.follow(hosts.workers[1:], 1.0)
    assert not hosts.worker.bars
    assert hosts.worker.connections.broken is None
    hosts.silence.heard(hosts.worker)
    hosts.silence.close()
    assert not hosts.sweep.ticking
