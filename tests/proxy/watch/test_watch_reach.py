"""Whose host acknowledges nothing: on a clock of the test's own, with a kernel that says what it is told to."""

from __future__ import annotations

import pytest
from quiet_hosts import HostPool, Hosts, Line, doubts
from tailrace.proxy.sweep import TICK
from tailrace.proxy.watch.reach import FEW
from tailrace.proxy.watch.vigil import PAROLE

pytestmark = pytest.mark.interpreted  # with stand-ins, which compiled code refuses


@pytest.fixture
def hosts() -> Hosts:
    """Of which nothing is known but that the worker was there just now."""
    hosts = Hosts()
    hosts.on_a_network()
    return hosts


@pytest.fixture
def pool(hosts: Hosts) -> HostPool:
    return hosts.on_a_network()


def gone(pool: HostPool) -> None:
    pool.there = False


# Requests.


def test_a_request_that_is_not_acknowledged_makes_a_suspect(hosts: Hosts, pool: HostPool) -> None:
    gone(pool)
    hosts.tick(1)
    hosts.request(arrives=False)
    hosts.tick(1)
    assert not hosts.suspect
    hosts.tick(1)
    assert hosts.suspect
    assert hosts.counted == ["host"]
    assert hosts.pool.eligible == hosts.workers[1:]
    assert hosts.worker.died == pytest.approx(hosts.now - 3 * TICK)


def test_one_lost_packet_moves_nothing(hosts: Hosts, pool: HostPool) -> None:
    """The second attempt at a connection is lost as well: nothing at all comes until the packet is sent again."""
    gone(pool)
    request = hosts.request(arrives=False)
    other = hosts.waiting()
    hosts.tick(5)
    assert hosts.suspect
    request.acknowledge()
    hosts.tick(1)
    assert not hosts.suspect
    hosts.tick(20)
    assert doubts(request) == doubts(other) == []
    assert not hosts.verified


def test_who_waits_at_a_host_that_is_gone_moves_a_moment_later(hosts: Hosts, pool: HostPool) -> None:
    gone(pool)
    request, other, runs = hosts.request(arrives=False), hosts.waiting(), hosts.stream()
    hosts.tick(5)
    assert hosts.suspect
    assert doubts(request) == doubts(other) == []
    hosts.tick(1)
    assert doubts(request) == doubts(other) == doubts(runs) == [("suspect", False)]
    assert hosts.verified == [hosts.worker]


def test_it_stays_suspect_until_there_is_a_sign_of_it(hosts: Hosts, pool: HostPool) -> None:
    gone(pool)
    request = hosts.request(arrives=False)
    hosts.tick(6)
    hosts.gone(request)
    pool.openings.clear()
    hosts.tick(12)
    assert not hosts.given_up
    hosts.tick(5)
    assert hosts.given_up
    hosts.tick(200)
    assert hosts.suspect
    pool.reached = hosts.now
    hosts.tick(1)
    assert not hosts.suspect
    assert not hosts.given_up
    assert hosts.worker.died == 0.0


def test_whatever_it_says_ends_the_suspicion(hosts: Hosts, pool: HostPool) -> None:
    gone(pool)
    hosts.request(arrives=False)
    hosts.tick(3)
    assert hosts.suspect
    hosts.silence.heard(hosts.worker)
    assert not hosts.suspect
    hosts.tick(1)
    assert not hosts.suspect


@pytest.mark.parametrize("arrives", [True, None], ids=["arrived", "nobody knows"])
def test_a_request_that_has_arrived_is_asked_for_once(hosts: Hosts, pool: HostPool, arrives: bool | None) -> None:
    request = hosts.request(arrives=arrives)
    hosts.tick(1)
    assert request.asked == 0
    hosts.tick(100)
    assert request.asked == 1
    assert not hosts.suspect


def test_nothing_is_asked_of_one_that_is_heard(hosts: Hosts) -> None:
    line, request = hosts.stream(), hosts.request(arrives=False)
    hosts.flow(40, line)
    assert request.asked == 0
    assert not hosts.suspect


@pytest.mark.parametrize("sign", ["answer", "rest", "connection"])
def test_other_signs_of_it_count_as_well(hosts: Hosts, pool: HostPool, sign: str) -> None:
    hosts.request(arrives=False)
    answered = hosts.waiting()
    for _ in range(20):
        hosts.tick(1)
        if sign == "answer":
            answered.got_bytes, answered.touched = True, hosts.now
        elif sign == "rest":
            pool.rested = hosts.now
        else:
            pool.reached = hosts.now
    assert not hosts.counted
    gone(pool)
    hosts.request(arrives=False)
    hosts.tick(3)
    assert hosts.suspect


@pytest.mark.parametrize("after", [0.03, 0.05])
def test_a_younger_request_that_has_arrived_speaks_for_the_host(hosts: Hosts, after: float) -> None:
    lost = hosts.request(arrives=False)
    hosts.tick(1)
    younger = hosts.request(arrives=True)
    younger.last = lost.sent + after
    hosts.tick(1)
    assert lost.asked == younger.asked == 1
    assert not hosts.suspect


def test_an_old_acknowledgement_speaks_for_nobody(hosts: Hosts, pool: HostPool) -> None:
    for _ in range(FEW - 1):
        hosts.request(arrives=True)
    hosts.tick(10)
    assert not hosts.suspect
    gone(pool)
    hosts.request(arrives=False)
    hosts.tick(3)
    assert hosts.suspect


def test_a_body_that_goes_on_arriving_is_no_silence(hosts: Hosts) -> None:
    upload = hosts.request(arrives=False)
    for _ in range(40):
        upload.last = hosts.now
        hosts.tick(1)
    assert not hosts.suspect


def test_few_are_asked_at_a_tick(hosts: Hosts) -> None:
    requests = [hosts.request(arrives=arrives) for arrives in (True, False) * 25]
    for _ in range(20):
        before = sum(request.asked for request in requests)
        hosts.tick(1)
        assert sum(request.asked for request in requests) - before <= FEW


def test_a_way_that_takes_long_is_given_more_time(hosts: Hosts) -> None:
    hosts.on_a_network(0.1)
    hosts.request(arrives=False)
    hosts.tick(9)
    assert not hosts.suspect
    hosts.tick(1)
    assert hosts.suspect


# Attempts at connections.


def test_an_attempt_that_nobody_answers_makes_a_suspect(hosts: Hosts, pool: HostPool) -> None:
    gone(pool)
    hosts.tick(1)
    pool.opening()
    hosts.tick(1)
    assert not hosts.suspect
    hosts.tick(1)
    assert hosts.suspect
    assert hosts.counted == ["host"]
    assert pool.knocks == 1


def test_a_second_attempt_that_is_answered_at_once_speaks_for_the_host(hosts: Hosts, pool: HostPool) -> None:
    lost = pool.opening()
    hosts.tick(2)
    assert pool.knocks == 1
    hosts.tick(1)
    assert not hosts.suspect
    # What was lost before is neither held against it again nor asked for.
    hosts.tick(10)
    assert hosts.counted == ["host"]
    assert lost.asked == 1


def test_where_the_way_is_not_known_nothing_is_concluded(hosts: Hosts) -> None:
    pool = hosts.on_a_network(0.0)
    gone(pool)
    attempt, request = pool.opening(), hosts.request(arrives=False)
    hosts.tick(100)
    assert not hosts.suspect
    assert attempt.asked == request.asked == pool.knocks == 0


def test_an_attempt_that_waits_for_an_address_was_not_sent(hosts: Hosts, pool: HostPool) -> None:
    pool.opening().sent = float("inf")
    hosts.tick(20)
    assert not hosts.suspect


# Both kinds of silence.


def test_a_lost_packet_moves_nothing_behind_a_pause_either(hosts: Hosts, pool: HostPool) -> None:
    lines = [hosts.stream() for _ in range(3)]
    hosts.flow(40, *lines)
    gone(pool)
    waits = hosts.waiting()
    request = hosts.request(arrives=False)
    hosts.tick(5)
    assert hosts.suspect
    request.acknowledge()
    pool.there = True
    hosts.tick(1)
    # Of its streams nothing comes yet.
    assert hosts.suspect
    assert doubts(waits) == []
    hosts.tick(12)
    assert doubts(waits) == [("suspect", False)]


def test_streams_that_end_let_in_nobody_whose_host_is_gone(hosts: Hosts, pool: HostPool) -> None:
    lines: list[Line] = [hosts.stream() for _ in range(3)]
    hosts.flow(40, *lines)
    gone(pool)
    hosts.tick(30)
    hosts.gone(*lines)
    hosts.tick(round(2 * PAROLE / TICK))
    assert hosts.given_up
