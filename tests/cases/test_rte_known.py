"""Routing, what is known of workers: addresses that change, old samples, and what it costs to ask."""

from __future__ import annotations

import asyncio

import pytest
from fakes import GOOD, Connection, Request, Upstream, json_answer, run, until
from sidecars import KEY, found, sidecar, simulated
from tailrace.proxy.address import Address
from tailrace.proxy.discovery import names, watched
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.watch import scraping, watcher
from tailrace.proxy.watch.feed import PATH as FEED

from cases.bare_fleet import Engine, ask, fleet, members


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "LOOK", 0.02)
    monkeypatch.setattr(watched, "SETTLED", 0.01)
    monkeypatch.setattr(watcher, "POLL", 0.02)
    monkeypatch.setattr(watcher, "LATEST", 0.1)
    monkeypatch.setattr(scraping, "EVERY", 0.02)


# RTE-11: old metrics steer routing.


def test_RTE_11_a_burst_is_spread_by_what_the_gateway_has_under_way_whatever_gauges_say() -> None:
    async def body() -> None:
        # One says that it idles, the other that it is full; neither is so any more.
        async with Engine(load=(0, 0)) as one, Engine(load=(60, 40)) as two:
            chosen = "plugins: [{route: {policy: least_inflight}}]\n"
            async with fleet(f"['{one.url}', '{two.url}']", chosen) as process:
                await until(lambda: all(worker.standing.load_known for worker in process.workers()))
                one.hold = two.hold = go = asyncio.Event()
                calls = [asyncio.ensure_future(ask(process)) for _ in range(20)]
                await until(lambda: one.served + two.served == 20)
                assert one.served == two.served == 10
                go.set()
                await asyncio.gather(*calls)

    run(body())


def test_RTE_11_a_sample_past_its_age_is_unknown_which_is_not_idle() -> None:
    async def body() -> None:
        async with Engine(load=(60, 40)) as one, fleet(f"['{one.url}']", "stale: 600ms\n") as process:
            (worker,) = process.workers()
            await until(lambda: worker.standing.running == 60)
            one.load = None
            await until(lambda: worker.standing.running is None)
            assert (worker.standing.waiting, worker.standing.kv_use, worker.eligible) == (None, None, True)
            await ask(process)
            one.load = (1, 0)
            await until(lambda: worker.standing.running == 1)

    run(body())


def test_RTE_11_what_is_asked_does_not_grow_with_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "EVERY", 60.0)

    async def body() -> None:
        async with Engine() as one, fleet(f"['{one.url}']") as process:
            (worker,) = process.workers()
            await until(lambda: worker.standing.load_known)
            await ask(process, 100)
            assert sum(request.target.startswith("/metrics") for request in one.requests) == 1

    run(body())


# RTE-12: address changes.


class Moving:
    """A name that has one address after the other."""

    def __init__(self, ip: str) -> None:
        self.ip = ip

    async def looked_up(self, _host: str, _port: int) -> list[str]:
        return [self.ip]

    async def resolved(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        address._found, address._found_at = [self.ip], loop.time()


async def moved(process: GatewayProcess, place: Moving, old: Engine, new: Engine, within: float) -> None:
    """Move a name while traffic never idles; the old address goes on to accept, and no call fails."""
    over = asyncio.Event()

    async def busy() -> None:
        while not over.is_set():
            await ask(process, 3)

    traffic = [asyncio.ensure_future(busy()) for _ in range(4)]
    await until(lambda: old.served > 20)
    place.ip = new.host
    await asyncio.sleep(within)
    before = old.served
    later = new.served
    await until(lambda: new.served > later + 50)
    assert old.served == before
    over.set()
    await asyncio.gather(*traffic)


def test_RTE_12_a_workers_name_moves_within_its_ttl_and_the_age_of_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, ttl, age = Moving("127.0.0.1"), 0.3, 0.3
    monkeypatch.setattr("tailrace.proxy.address._RESOLVE_EVERY", ttl)
    monkeypatch.setattr(Address, "_resolve", lambda self, loop: place.resolved(self, loop))

    async def body() -> None:
        async with Engine() as old, Engine(host="127.0.0.2", port=old.port) as new:
            async with fleet(f"['http://vllm.lan:{old.port}']", f"timeouts: {{upstream_age: {age}}}\n") as process:
                # One connection finds out that the answer is old, and the next one has the new.
                await moved(process, place, old, new, within=ttl + 2 * age + 0.3)

    run(body())


def test_RTE_12_a_name_that_is_followed_moves_with_its_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Moving("127.0.0.1")
    monkeypatch.setattr(names, "resolve", place.looked_up)

    async def body() -> None:
        async with Engine() as old, Engine(host="127.0.0.2", port=old.port) as new:
            async with fleet(f"[{{dns: {{url: 'http://vllm.lan:{old.port}', every: 1s}}}}]") as process:
                await moved(process, place, old, new, within=1.3)
                assert members(process) == [new.url]

    run(body())


# RTE-16: probes that cost.


def test_RTE_16_nothing_is_generated_to_find_out_how_a_worker_is() -> None:
    async def body() -> None:
        async with Engine() as bare, simulated() as sim, sidecar(found(sim.url), f"hop_key: {KEY}\n") as side:
            asked = len(sim.received)
            urls = f"['{bare.url}', '{side.doors[0].shown}']"
            async with fleet(urls, f"hop_key: {KEY}\n") as process:
                await until(lambda: len(bare.requests) > 40)
                await until(lambda: all(worker.standing.load_known for worker in process.workers()))
            assert {request.method for request in bare.requests} == {"GET"}
            paths = {request.target.partition("?")[0].rstrip("/") for request in bare.requests}
            assert paths == {FEED, "/health", "/v1/models", "/metrics"}
            assert not [request for request in sim.received[asked:] if request.method == "POST"]

    run(body())


def test_RTE_16_probes_that_fail_at_full_load_eject_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "ANSWER", 0.05)
    monkeypatch.setattr(scraping, "ANSWER", 0.05)
    full = asyncio.Event()

    async def script(conn: Connection, request: Request) -> None:
        if request.method == "POST":
            await conn.send(GOOD)
        elif request.target == FEED:
            await conn.send(json_answer({}, 404))
        elif full.is_set():
            await conn.wait_closed()
        else:
            await conn.send(json_answer({"data": []}))

    async def body() -> None:
        async with Upstream(script) as one, fleet(f"['{one.url}']") as process:
            (worker,) = process.workers()
            await until(lambda: worker.standing.seen is not None)
            full.set()
            before = len(one.requests)
            await until(lambda: len(one.requests) > before + 10)
            assert worker.eligible
            await ask(process, 5)

    run(body())
