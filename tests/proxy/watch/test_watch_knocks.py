"""Who is asked for a sign of life, because none comes by itself: on a clock of the test's own."""

from __future__ import annotations

import pytest
from quiet_hosts import BEAT, HostPool, Hosts
from tailrace.proxy.sweep import TICK
from tailrace.proxy.watch.reach import MEASURED
from tailrace.proxy.watch.silence import EACH
from tailrace.proxy.watch.vigil import QUIET

pytestmark = pytest.mark.interpreted  # with stand-ins, which compiled code refuses
QUIET_TICKS = round(QUIET / TICK)


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


def test_an_engine_whose_only_stream_falls_silent_is_asked_whether_it_is_there(hosts: Hosts, pool: HostPool) -> None:
    line = hosts.stream()
    hosts.flow(40, line)
    hosts.tick(2)
    assert pool.knocks == 0
    gone(pool)
    hosts.tick(1)
    assert pool.knocks == 1
    hosts.tick(1)
    assert not hosts.suspect
    hosts.tick(1)
    assert hosts.suspect
    assert hosts.counted == ["host"]


def test_one_that_thinks_is_asked_now_and_then_and_stays(hosts: Hosts, pool: HostPool) -> None:
    line = hosts.stream()
    hosts.flow(40, line)
    hosts.tick(3 + 3 * QUIET_TICKS)
    assert pool.knocks == 4
    assert not hosts.suspect


def test_a_slow_engine_is_asked_only_where_it_is_slower_than_usual(hosts: Hosts, pool: HostPool) -> None:
    line = hosts.stream()
    hosts.flow(600, line, every=6)
    learning = pool.knocks
    hosts.flow(200, line, every=6)
    assert pool.knocks == learning


def test_an_idle_engine_is_asked_and_noticed_within_a_second(hosts: Hosts, pool: HostPool) -> None:
    pool.reached = hosts.now
    gone(pool)
    hosts.tick(QUIET_TICKS - 1)
    assert pool.knocks == 0
    hosts.tick(round(1 / TICK) - QUIET_TICKS)
    assert hosts.suspect
    # One was to see whether it is there, the other whether the first one was lost.
    assert pool.knocks == 2


def test_one_that_comes_back_is_asked_until_it_does(hosts: Hosts, pool: HostPool) -> None:
    gone(pool)
    hosts.tick(60)
    assert hosts.given_up
    for attempt in tuple(pool.openings):
        pool.openings.discard(attempt)
    pool.there = True
    hosts.tick(QUIET_TICKS + 1)
    assert not hosts.suspect


def test_one_whose_metrics_are_read_is_not_asked(hosts: Hosts, pool: HostPool) -> None:
    for _ in range(20):
        hosts.tick(QUIET_TICKS - 1)
        pool.reached = hosts.now
    assert pool.knocks == 0


def test_one_that_promises_signs_of_life_is_not_asked(hosts: Hosts, pool: HostPool) -> None:
    hosts.silence.promised(hosts.worker, BEAT)
    hosts.stream()
    hosts.tick(100, beats=True)
    assert pool.knocks == 0


def test_one_that_is_dead_is_not_asked(hosts: Hosts, pool: HostPool) -> None:
    hosts.worker.standing.dead = True
    hosts.tick(100)
    assert pool.knocks == 0


def test_one_to_which_the_way_is_not_known_is_not_asked(hosts: Hosts) -> None:
    pool = hosts.on_a_network(0.0)
    hosts.tick(100)
    assert pool.knocks == 0


def test_nobody_knocks_behind_another_attempt(hosts: Hosts, pool: HostPool) -> None:
    pool.opening().sent = float("inf")
    hosts.tick(100)
    assert pool.knocks == 0


def test_many_workers_are_asked_rarely() -> None:
    hosts = Hosts(1000)
    hosts.on_a_network()
    hosts.tick(round(10 / TICK))
    knocks = sum(worker.connections.knocks for worker in hosts.workers)  # type: ignore[attr-defined]
    assert 0.5 * 10 / EACH < knocks <= 10 / EACH


def test_how_far_a_worker_is_is_measured_now_and_then(hosts: Hosts, pool: HostPool) -> None:
    """One whose connection was opened in a bad moment would get no calls, and so no other connection."""
    hosts.tick(10 * round(MEASURED / TICK))
    assert 9 <= pool.measured <= 11
