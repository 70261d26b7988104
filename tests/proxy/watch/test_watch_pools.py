"""What the log says of pools whose last worker is lost, and of workers that are gone for good."""

from __future__ import annotations

import logging

import pytest
from fakes import Connection, Upstream, chunked, run, until
from quiet_hosts import Hosts
from tailrace.proxy.fleet import SILENT
from tailrace.proxy.watch import watcher
from tailrace.proxy.watch.pools import Pools
from watched import feeding, state, watching, worker_of


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.interpreted
def test_the_last_worker_of_a_pool_is_told_and_the_first_again(caplog: pytest.LogCaptureFixture) -> None:
    hosts, pools = Hosts(), Pools()
    one, two = hosts.workers
    with caplog.at_level(logging.INFO, "tailrace"):
        for worker in hosts.workers:
            worker.standing.dead = True
        hosts.pool.rebuild()
        pools.look(hosts.workers)
        assert not said(caplog), "nobody has been heard of yet"
        for worker in hosts.workers:
            worker.standing.dead, worker.standing.seen = False, 1.0
        hosts.pool.rebuild()
        pools.look(hosts.workers)
        one.standing.dead = True
        one.changed()
        pools.look(hosts.workers)
        assert not said(caplog)
        two.bar(SILENT)
        for _ in range(3):
            pools.look(hosts.workers)
        assert said(caplog) == [("ERROR", "pool 'all': no worker takes calls")]
        two.unbar(SILENT)
        for _ in range(3):
            pools.look(hosts.workers)
        assert said(caplog)[1:] == [("INFO", "pool 'all': a worker takes calls again")]
        pools.look(())
        assert not pools._served


def test_a_drained_worker_that_dies_is_told_to_be_gone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LATEST", 0.1)

    async def body() -> None:
        async def then(conn: Connection) -> None:
            await until(lambda: process.watch._pools._served)
            await conn.send(chunked(state(draining=True)))
            await until(lambda: worker_of(process).standing.draining)
            await until(lambda: "no worker takes calls" in caplog.text)
            upstream.refuse()
            conn.close()

        async with Upstream(feeding(state(), then=then)) as upstream, watching(upstream.url) as process:
            await until(lambda: worker_of(process).standing.dead)
            name = worker_of(process).name
            lines = said(caplog)
            assert ("INFO", f"worker {name} takes no calls: it is drained") in lines
            assert ("ERROR", "pool 'all': no worker takes calls") in lines
            gone = [line for line in lines if " is gone: " in line[1]]
            assert gone == [("WARNING", f"worker {name} is gone: no connection (Connection refused)")]

    with caplog.at_level(logging.INFO, "tailrace"):
        run(body())
