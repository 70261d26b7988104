"""Who counts as silent, and when: on a clock of the test's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from quiet_hosts import BEAT, Hosts, Stream, Waiting, doubts
from tailrace.proxy.sink import Sink
from tailrace.proxy.sweep import TICK
from tailrace.proxy.watch.asked import Asked
from tailrace.proxy.watch.subscription import Subscription
from tailrace.proxy.watch.vigil import PAROLE

pytestmark = pytest.mark.interpreted  # with stand-ins, which compiled code refuses


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


# Signs of life.


def test_three_signs_of_life_that_fail_to_come_make_a_suspect(hosts: Hosts) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    hosts.tick(20, beats=True)
    hosts.silence.heard(hosts.worker)
    hosts.tick(5)
    assert not hosts.suspect
    hosts.tick(1)
    assert hosts.suspect
    assert hosts.counted == ["heartbeat"]
    assert hosts.pool.eligible == hosts.workers[1:]
    hosts.silence.heard(hosts.worker)
    assert not hosts.suspect
    hosts.tick(1)
    assert hosts.pool.eligible == hosts.workers


def test_a_slower_promise_is_kept_more_slowly(hosts: Hosts) -> None:
    hosts.silence.promised(hosts.worker, 0.5)
    hosts.silence.heard(hosts.worker)
    hosts.tick(29)
    assert not hosts.suspect
    hosts.tick(1)
    assert hosts.suspect


def test_who_promises_nothing_may_be_silent(hosts: Hosts) -> None:
    hosts.silence.heard(hosts.worker)
    hosts.tick(200)
    assert not hosts.suspect
    hosts.silence.promised(hosts.worker, BEAT)
    hosts.tick(1)
    assert hosts.suspect
    hosts.silence.promised(hosts.worker, 0.0)
    hosts.silence.heard(hosts.worker)
    hosts.tick(200)
    assert not hosts.suspect


def test_streams_that_go_on_are_signs_of_life(hosts: Hosts) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    line = hosts.stream()
    hosts.flow(40, line)
    assert not hosts.suspect
    hosts.tick(8)
    assert hosts.suspect
    hosts.flow(1, line)
    assert not hosts.suspect


@pytest.mark.parametrize("late", [0.05, 0.4, 5.0])
def test_a_stall_of_ones_own_is_nobodys_silence(hosts: Hosts, late: float) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    lines = [hosts.stream() for _ in range(3)]
    hosts.flow(20, *lines)
    hosts.tick(20, late=late)
    assert not hosts.suspect
    hosts.tick(6)
    assert hosts.suspect


def test_a_small_delay_is_no_stall(hosts: Hosts) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    hosts.silence.heard(hosts.worker)
    hosts.tick(5, late=0.02)
    assert hosts.suspect


# Streams.


def test_three_streams_on_which_nothing_comes_make_a_suspect(hosts: Hosts) -> None:
    lines = [hosts.stream() for _ in range(3)]
    hosts.flow(40, *lines)
    hosts.tick(2)
    assert not hosts.suspect
    hosts.tick(1)
    assert hosts.suspect
    assert hosts.counted == ["streams"]
    hosts.flow(1, lines[2])
    assert not hosts.suspect


def test_two_streams_are_too_few(hosts: Hosts) -> None:
    lines = [hosts.stream() for _ in range(2)]
    hosts.flow(40, *lines)
    hosts.tick(100)
    assert not hosts.suspect


def test_one_that_goes_on_speaks_for_all(hosts: Hosts) -> None:
    lines = [hosts.stream() for _ in range(6)]
    hosts.flow(20, *lines)
    hosts.flow(100, lines[4], every=3)
    assert not hosts.suspect


def test_streams_that_are_not_read_or_have_not_begun_owe_nothing(hosts: Hosts) -> None:
    lines = [hosts.stream() for _ in range(4)]
    for _ in range(5):
        hosts.waiting()
    hosts.flow(20, *lines)
    for line in lines[:2]:
        line.sink.reads = False
    hosts.tick(100)
    assert not hosts.suspect


def test_a_worker_may_take_four_times_its_own_pause(hosts: Hosts) -> None:
    lines = [hosts.stream() for _ in range(3)]
    hosts.flow(400, *lines, every=4)
    hosts.say(*lines)
    hosts.tick(16)  # one of them is the pause itself
    assert not hosts.suspect
    hosts.tick(2)
    assert hosts.suspect


def test_one_long_pause_is_not_what_is_usual(hosts: Hosts) -> None:
    lines = [hosts.stream() for _ in range(4)]
    hosts.flow(100, *lines)
    other = hosts.stream()
    # All but one are set aside for half a minute, and go on.
    hosts.flow(600, other)
    hosts.flow(2, *lines, other)
    hosts.tick(8)
    assert hosts.suspect


def test_pauses_are_those_of_one_stream(hosts: Hosts) -> None:
    lines = [hosts.stream() for _ in range(4)]
    for _ in range(100):
        for line in lines:
            hosts.flow(1, line)
    hosts.tick(14)
    assert not hosts.suspect
    hosts.tick(3)
    assert hosts.suspect


def test_a_false_alarm_makes_patient_for_a_while(hosts: Hosts) -> None:
    lines = [hosts.stream() for _ in range(3)]
    hosts.flow(40, *lines)
    hosts.tick(8)
    assert hosts.suspect
    hosts.flow(20, *lines)
    hosts.tick(12)
    assert not hosts.suspect
    hosts.tick(6)
    assert hosts.suspect
    assert len(hosts.counted) == 2
    hosts.flow(8000, *lines)
    hosts.tick(4)
    assert hosts.suspect


def test_who_owes_nothing_any_more_is_tried_again_after_a_while(hosts: Hosts) -> None:
    lines = [hosts.stream() for _ in range(3)]
    hosts.tick(30)
    assert hosts.given_up
    hosts.gone(*lines)
    hosts.tick(round(PAROLE / TICK) - 1)
    assert hosts.given_up
    hosts.tick(3)
    assert not hosts.suspect
    assert not hosts.given_up


# Connections.


def test_calls_that_find_nobody_make_a_suspect_at_once(hosts: Hosts) -> None:
    waits = hosts.waiting()
    hosts.worker.connections.broken(None)  # type: ignore[misc]
    assert hosts.suspect
    assert hosts.verified == [hosts.worker]
    assert doubts(waits) == []
    hosts.tick(2)
    assert doubts(waits) == [("suspect", False)]
    hosts.worker.connections.broken(None)  # type: ignore[misc]
    assert hosts.verified == [hosts.worker]
    hosts.silence.heard(hosts.worker)
    assert not hosts.suspect


def test_exchanges_that_break_at_once_make_a_suspect_but_one_does_not(hosts: Hosts) -> None:
    broken: Any = hosts.worker.connections.broken
    for _ in range(3):
        broken(Stream())
        hosts.tick(4)
    assert not hosts.suspect

    async def questions() -> list[Sink]:
        return [Asked(), Subscription(print)]

    for question in asyncio.run(questions()) * 2:
        broken(question)
    assert not hosts.suspect
    broken(Stream())
    assert not hosts.suspect
    broken(Waiting())
    assert hosts.suspect
    assert hosts.counted == ["connection"]
    assert hosts.verified == [hosts.worker]


def test_who_is_well_by_its_sidecar_is_not_asked_anew(hosts: Hosts) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    hosts.silence.heard(hosts.worker)
    hosts.worker.connections.broken(None)  # type: ignore[misc]
    assert hosts.suspect
    assert not hosts.verified
    hosts.silence.heard(hosts.worker)
    assert not hosts.suspect
