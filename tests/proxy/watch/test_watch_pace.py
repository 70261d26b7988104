"""Lists that depend on many workers are built anew once for many of their changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import run, until
from quiet_hosts import Hosts
from tailrace.proxy.address import Address
from tailrace.proxy.fleet import Pool, Worker
from tailrace.proxy.pool import ConnectionPool, PoolLimits
from tailrace.proxy.sweep import Sweep
from tailrace.proxy.watch.fleet_watch import FleetWatch
from tailrace.proxy.watch.pace import LITTLE, PERIOD, REST, Pace

pytestmark = pytest.mark.interpreted


class Slow(Pool):
    """Counts how often its lists are built, each time with a lot of work."""

    built = 0

    def rebuild(self) -> None:
        Slow.built += 1
        super().rebuild()


@pytest.fixture(autouse=True)
def _begin(monkeypatch: pytest.MonkeyPatch) -> None:
    Slow.built = 0
    monkeypatch.setattr("tailrace.proxy.watch.pace.LITTLE", 1e-9)


def test_little_work_is_done_at_once_and_then_there_is_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.proxy.watch.pace.LITTLE", LITTLE)
    now = 100.0
    pace = Pace(lambda: now)

    def work(seconds: float) -> None:
        nonlocal now
        now += seconds

    assert pace.wait == 0.0
    pace.do(lambda: work(0.6 * LITTLE))
    assert pace.wait == 0.0
    pace.do(lambda: work(0.6 * LITTLE))
    assert pace.wait == pytest.approx(PERIOD - 1.2 * LITTLE)
    now += PERIOD
    assert pace.wait == 0.0
    pace.do(lambda: work(2.0))
    assert pace.wait == pytest.approx(2.0 * REST)


def test_workers_that_change_together_have_lists_built_at_once_and_once_more() -> None:
    async def body() -> None:
        sweep = Sweep(asyncio.get_running_loop())
        listed: list[int] = []
        watch = FleetWatch(sweep, lambda: listed.append(1), lambda *_: None, watching=False)
        workers = []
        for port in range(1, 200):
            address = Address.parse(f"http://127.0.0.1:{port}")
            workers.append(Worker(address, ConnectionPool(address, None, sweep, PoolLimits())))
        pool = Slow("p", workers)
        for worker in workers:
            worker.pools.append(pool)
        pool.rebuild()
        watch.follow(workers, None, 1.0, 1.0)
        for worker in workers[1:]:
            worker.standing.dead = True
            watch.changed(worker)
        # The first of them at once.
        assert len(pool.eligible) == len(workers) - 1
        await until(lambda: pool.eligible == workers[:1])
        assert (Slow.built, len(listed)) == (3, 2)
        await watch.close()

    run(body())


def test_workers_that_are_not_reached_together() -> None:
    """The first is barred at once, the others at the next tick."""
    hosts = Hosts(100)
    pool: Any = Slow("all", hosts.workers)
    for worker in hosts.workers:
        worker.pools[:] = [pool]
    pool.rebuild()
    for worker in hosts.workers[1:]:
        hosts.silence.unreached(worker)
    assert Slow.built == 2
    assert hosts.workers[1] not in pool.eligible
    hosts.tick()
    assert Slow.built == 3
    assert len(pool.eligible) == 50
