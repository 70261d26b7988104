"""Workers by what identifies them: one for each endpoint, over reloads, removals and returns."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from fakes import decoded, run
from tailrace.proxy.build import all_pools
from tailrace.proxy.chain import Running
from tailrace.proxy.discovery.endpoint import Endpoint, Found
from tailrace.proxy.fleet import Worker
from tailrace.proxy.limits import Timeouts
from tailrace.proxy.roster import LINGER, UNHEARD, Roster
from tailrace.proxy.sweep import Sweep

ONE, TWO, THREE = "http://10.0.0.1:80", "http://10.0.0.2:80", "http://10.0.0.3:80"
FILE = "file /w.yaml"


class Scene:
    """A roster of a configuration's pools, on a clock that stands still."""

    def __init__(self, pools: str) -> None:
        self.sweep = Sweep(asyncio.get_running_loop())
        self.roster = Roster(self.sweep)
        self.load(pools)

    def load(self, pools: str, calls: Running | None = None, **timeouts: float) -> None:
        settings = decoded(f"listen: 127.0.0.1:0\nmodels: {{m: {{workers: [http://u]}}}}\npools:\n{_in(pools)}")
        kept = {name: pool for name, pool in all_pools(settings).items() if name != "model:m"}
        self.proposal = self.roster.propose(kept, Timeouts(**timeouts))
        self.roster.adopt(self.proposal, calls)

    def find(self, *found: str | Endpoint, same: dict[str, str] | None = None) -> None:
        endpoints = tuple(Endpoint(each) if isinstance(each, str) else each for each in found)
        self.roster.update(Found({FILE: endpoints}, same or {}))

    def names(self, pool: str = "p") -> list[str]:
        return [worker.name for worker in self.proposal.pools[pool].workers]

    def takers(self, pool: str = "p") -> list[str]:
        return [worker.name for worker in self.proposal.pools[pool].eligible]

    def worker(self, name: str) -> Worker:
        (found,) = [worker for worker in self.roster.workers if worker.name == name]
        return found

    def after(self, seconds: float) -> None:
        self.sweep.clock.now += seconds
        self.roster.visit(self.sweep.clock.now)


def _in(pools: str) -> str:
    return textwrap.indent(textwrap.dedent(pools), "  ")


def on_a_loop(test: Callable[[], Any]) -> Callable[[], None]:
    def wrapped() -> None:
        async def body() -> None:
            test()

        run(body())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@on_a_loop
def test_members_come_and_go_in_place() -> None:
    it = Scene(f"p: {{workers: [{ONE}, {{file: /w.yaml}}]}}")
    pool, one = it.proposal.pools["p"], it.worker(ONE)
    it.find(TWO, THREE)
    assert it.names() == it.takers() == [ONE, TWO, THREE]
    it.find(THREE)
    assert it.names() == it.takers() == [ONE, THREE]
    assert (it.proposal.pools["p"], it.worker(ONE)) == (pool, one)
    assert (one.origins, it.worker(THREE).origins) == (("static",), (FILE,))


@on_a_loop
def test_what_is_found_is_there_for_a_configuration_that_comes_later() -> None:
    it = Scene(f"q: {{workers: [{ONE}]}}")
    it.find(TWO)
    it.load("p: {workers: [{file: /w.yaml}]}")
    assert it.names() == [TWO]


@on_a_loop
def test_a_removed_worker_belongs_to_no_pool_and_is_itself_when_it_returns() -> None:
    it = Scene("p: {workers: [{file: /w.yaml}]}")
    it.find(ONE, TWO)
    one = it.worker(ONE)
    one.inflight = 3
    it.find(TWO)
    assert one.pools == []
    assert list(it.roster.leaving) == [one]
    one.standing.dead = True
    one.changed()
    it.after(10.0)
    one.standing.dead = False
    it.find(TWO, ONE)
    assert it.worker(ONE) is one
    assert one.inflight == 3
    assert list(it.roster.leaving) == []
    assert it.takers() == [TWO, ONE]


@on_a_loop
def test_it_is_let_go_after_its_last_call_and_forgotten_later() -> None:
    it = Scene("p: {workers: [{file: /w.yaml}]}")
    let_go: list[int] = []
    it.roster.let_go = lambda: let_go.append(1)
    it.find(ONE)
    one = it.worker(ONE)
    one.inflight = 1
    it.find()
    for _ in range(5):
        it.after(LINGER)
    assert list(it.roster.leaving) == [one]
    one.inflight = 0
    it.after(1.0)
    it.after(1.0)
    assert let_go == [1]
    assert list(it.roster.leaving) == []
    it.after(LINGER - 3.0)
    it.find(ONE)
    assert it.worker(ONE) is one
    it.find()
    it.after(LINGER + 1.0)
    it.find(ONE)
    assert it.worker(ONE) is not one


@on_a_loop
def test_weights_and_regions_are_the_workers_own_or_their_entrys() -> None:
    it = Scene(f"p: {{workers: [{{url: {ONE}, weight: 2, region: eu}}, {{file: /w.yaml, weight: 3, region: us}}]}}")
    it.find(TWO, Endpoint(THREE, 0.5, "ap"))
    told = {worker.name: (worker.weight, worker.region) for worker in it.roster.workers}
    assert told == {ONE: (2.0, "eu"), TWO: (3.0, "us"), THREE: (0.5, "ap")}
    it.find(Endpoint(TWO, 4.0))
    assert it.worker(TWO).weight == 4.0


@on_a_loop
def test_a_reload_keeps_workers_and_lets_new_limits_hold_for_them() -> None:
    it = Scene(f"p: {{workers: [{ONE}]}}")
    one = it.worker(ONE)
    one.inflight = 2
    it.load(f"q: {{workers: [{ONE}, {TWO}]}}", upstream_idle=1.5, upstream_age=9.0, connect=0.5)
    assert it.worker(ONE) is one
    connections = one.connections
    assert (connections.idle_limit, connections.max_age, connections.connect_limit) == (1.5, 9.0, 0.5)
    assert [pool.name for pool in one.pools] == ["q"]


@on_a_loop
def test_calls_of_the_configuration_before_choose_from_the_workers_of_now() -> None:
    it = Scene(f"p: {{workers: [{{file: /w.yaml}}]}}\nq: {{workers: [{THREE}]}}")
    it.find(ONE)
    before, calls = it.proposal.pools, Running()
    calls.count = 1
    it.load("p: {workers: [{file: /w.yaml}]}", calls)
    it.find(ONE, TWO)
    one = it.worker(ONE)
    assert before["p"].eligible == list(it.roster.workers)
    one.standing.dead = True
    one.changed()
    assert [worker.name for worker in before["p"].eligible] == [TWO]
    # A pool that is named no more has the workers it had.
    assert [worker.name for worker in before["q"].eligible] == [THREE]
    calls.count = 0
    it.find(THREE)
    assert [worker.name for worker in before["p"].workers] == [ONE, TWO]
    assert [pool.name for pool in it.worker(THREE).pools] == ["p"]


@on_a_loop
def test_another_key_is_another_worker() -> None:
    it = Scene(f"p: {{workers: [{ONE}], api_key: one}}\nq: {{workers: [{ONE}], api_key: two}}\nr: {{workers: [{ONE}]}}")
    assert len(list(it.roster.workers)) == 3


@on_a_loop
def test_newcomers_wait_until_they_are_heard_of_where_others_serve() -> None:
    it = Scene(f"p: {{workers: [{ONE}, {{file: /w.yaml}}]}}")
    it.roster.watched = True
    it.find(TWO)
    assert it.takers() == [ONE]
    two = it.worker(TWO)
    assert two.standing.reason == UNHEARD
    two.standing.ready = True
    two.changed()
    assert it.takers() == [ONE, TWO]


@on_a_loop
def test_newcomers_that_are_all_there_is_get_calls_at_once() -> None:
    it = Scene("p: {workers: [{file: /w.yaml}]}")
    it.roster.watched = True
    it.find(ONE)
    assert it.takers() == [ONE]
    it.find(TWO)
    assert it.takers() == [TWO]


@on_a_loop
def test_one_that_returns_while_it_is_still_watched_need_not_wait() -> None:
    it = Scene(f"p: {{workers: [{ONE}, {{file: /w.yaml}}]}}")
    it.find(TWO)
    it.worker(TWO).inflight = 1
    it.roster.watched = True
    it.find()
    it.find(TWO)
    assert it.takers() == [ONE, TWO]


@on_a_loop
def test_a_name_and_an_address_that_are_the_same_are_one_worker() -> None:
    it = Scene("p: {workers: [http://gpu1, {file: /w.yaml}]}")
    it.find(ONE, same={ONE: "http://gpu1:80"})
    assert it.names() == ["http://gpu1:80"]
    assert it.worker("http://gpu1:80").origins == ("static", FILE)


@on_a_loop
def test_an_endpoint_of_a_name_is_called_by_it() -> None:
    it = Scene("p: {workers: [{file: /w.yaml}]}")
    it.find(Endpoint("https://10.0.0.1:443", name="vllm.svc"))
    (worker,) = it.roster.workers
    assert worker.address.server_name == "vllm.svc"
    assert b"host: vllm.svc:443\r\n" in worker.headers


def test_what_is_no_url_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        it = Scene("p: {workers: [{file: /w.yaml}]}")
        it.find("ftp://x", ONE)
        assert it.names() == [ONE]

    run(body())
    assert "names no worker" in caplog.text


@on_a_loop
def test_a_thousand_workers_are_taken_up() -> None:
    it = Scene("p: {workers: [{file: /w.yaml}]}")
    it.find(*(f"http://10.0.{n // 250}.{n % 250 + 1}:80" for n in range(1000)))
    assert len(it.takers()) == 1000
    it.find()
    assert it.takers() == []
