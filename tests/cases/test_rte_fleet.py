"""Routing, knowing the fleet: workers that are gone although nobody said so, and workers that are there twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from fakes import PATH, Connection, RawClient, Request, Upstream, decoded, json_answer, run, until
from sidecars import KEY, hop
from tailrace.proxy.discovery import watched
from tailrace.proxy.discovery.announcement import PATH as WORKERS
from tailrace.proxy.gateway import running
from tailrace.proxy.watch import scraping, watcher
from tailrace.proxy.watch.feed import PATH as FEED

from cases.bare_fleet import MODEL, Engine, ask, fleet, members, takers


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "LOOK", 0.02)
    monkeypatch.setattr(watched, "SETTLED", 0.01)
    monkeypatch.setattr(watcher, "POLL", 0.02)
    monkeypatch.setattr(watcher, "LATEST", 0.1)
    monkeypatch.setattr(scraping, "EVERY", 0.02)


# RTE-01: ghost endpoints.


def test_RTE_01_a_worker_whose_address_became_empty_is_gone_within_a_cycle(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "w.json"
        async with Engine() as one, Engine() as two:
            file.write_text(orjson.dumps([{"url": one.url, "region": "a"}, {"url": two.url}]).decode())
            async with fleet(f"[{{file: {file}}}]") as process:
                assert members(process) == [one.url, two.url]
                file.write_text(orjson.dumps([{"url": "", "region": "a"}, {"url": two.url}]).decode())
                await until(lambda: members(process) == takers(process) == [two.url])
                one.served = 0
                await ask(process, 10)
                assert one.served == 0

    run(body())


def test_RTE_01_a_worker_that_is_removed_during_a_slow_probe_stays_removed(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def slow(conn: Connection, request: Request) -> None:
        await go.wait()
        await conn.send(json_answer({"data": []}, 404 if request.target == FEED else 200))

    async def body() -> None:
        file = tmp_path / "w.yaml"
        async with Upstream(slow) as one, Engine() as two:
            file.write_text(f"- {one.url}\n- {two.url}\n")
            async with fleet(f"[{{file: {file}}}]") as process:
                (ghost,) = [worker for worker in process.workers() if worker.name == one.url]
                await one.asked()
                file.write_text(f"- {two.url}\n")
                await until(lambda: members(process) == [two.url])
                go.set()
                await until(lambda: one.closed_at)
                assert members(process) == takers(process) == [two.url]
                assert ghost not in process.watch._watches
                # And back: it is the same worker, watched anew.
                file.write_text(f"- {one.url}\n- {two.url}\n")
                await until(lambda: one.url in takers(process))
                assert ghost in process.watch._watches

    run(body())


def test_RTE_01_what_was_missed_while_the_source_was_gone_is_repaired_by_its_next_list(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "w.yaml"
        async with Engine() as one, Engine() as two, Engine() as three:
            file.write_text(f"- {one.url}\n- {two.url}\n")
            async with fleet(f"[{{file: {file}}}]") as process:
                file.unlink()
                assert process._search is not None
                ((_, source, _),) = process._search._sources.values()
                await until(lambda: source.trouble)
                assert members(process) == [one.url, two.url]
                await ask(process)
                file.write_text(f"- {two.url}\n- {three.url}\n")
                await until(lambda: takers(process) == [two.url, three.url])

    run(body())


def test_RTE_01_a_worker_that_is_added_twice_is_one(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "w.yaml"
        async with Engine() as one, Engine() as two:
            file.write_text(f"- {one.url}\n- {{url: {one.url}/}}\n- {two.url}\n")
            more = f"hop_key: {KEY}\n"
            async with fleet(f"['{two.url}', {{file: {file}}}, {{registered: g}}]", more) as process:
                async with RawClient(process.doors[0].shown) as client:
                    for _ in range(2):
                        await client.post(WORKERS, {"group": "g", "worker": one.url}, hop())
                assert sorted(members(process)) == sorted([one.url, two.url])
                file.write_text("[]")
                await until(
                    lambda: {worker.origins for worker in process.workers()} == {("static",), ("registered g",)}
                )
                # One of its origins is gone, it is not.
                assert sorted(members(process)) == sorted([one.url, two.url])

    run(body())


def test_RTE_01_a_ghost_that_nobody_removes_is_left_by_its_failures(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "w.yaml"
        async with Engine() as one, Engine() as two:
            file.write_text(f"- {one.url}\n- {two.url}\n")
            async with fleet(f"[{{file: {file}}}]") as process:
                await until(lambda: takers(process) == [one.url, two.url])
                one.refuse()
                for connection in one.connections:
                    await connection.end()
                await ask(process, 5)
                await until(lambda: takers(process) == [two.url])
                assert members(process) == [one.url, two.url]
                await ask(process, 5)

    run(body())


def test_RTE_01_a_removed_worker_finishes_its_stream_and_is_let_go_afterwards(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "w.yaml"
        async with Engine() as one, Engine() as two:
            file.write_text(f"- {one.url}\n")
            async with (
                fleet(f"[{{file: {file}}}]", "timeouts: {upstream_idle: 1m}\n") as process,
                RawClient(process.doors[0].shown) as client,
            ):
                one.hold = asyncio.Event()
                running_call = asyncio.ensure_future(client.post(PATH, MODEL))
                await until(lambda: one.served)
                (ghost,) = process.workers()
                file.write_text(f"- {two.url}\n")
                await until(lambda: takers(process) == [two.url])
                await ask(process, 5)
                assert (one.served, two.served, ghost.inflight) == (1, 5, 1)
                assert ghost in process.watch._watches
                one.hold.set()
                assert (await running_call).status == 200
                await until(lambda: ghost not in process.watch._watches)
                await until(lambda: not ghost.connections.open)

    run(body())


# RTE-13: the same endpoint twice.


def test_RTE_13_one_endpoint_is_one_worker_however_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def looked_up(host: str, _port: int) -> list[str]:
        return {"u": ["10.0.0.1"], "other": ["10.0.0.2"]}[host]

    monkeypatch.setattr("tailrace.proxy.discovery.twins.resolve", looked_up)
    yaml = """
    listen: [127.0.0.1:0]
    models:
      m: {pool: p}
      n: {workers: ["http://u", "http://other"]}
      o: {workers: ["HTTP://U/"]}
    pools:
      p: {workers: ["http://u:80", "http://10.0.0.1", "http://other"]}
    """

    async def body() -> None:
        async with running(decoded(yaml)) as process:
            one, two = process.workers()
            assert (one.name, two.name) == ("http://u:80", "http://other:80")
            # No double share, and one count of calls under way for both names of it and all models.
            assert process.pools["p"].workers == (one, two)
            assert process.pools["model:n"].workers == (one, two)
            assert process.pools["model:o"].workers == (one,)

    run(body())


def test_RTE_13_a_list_that_names_one_twice_is_refused() -> None:
    for again in ("http://u", "HTTP://U/", "http://u:80/"):
        with pytest.raises(Exception, match=r"listed twice \(http://u:80\)"):
            decoded(f"listen: 127.0.0.1:0\nmodels: {{m: {{workers: ['http://u:80', '{again}']}}}}\n")
    with pytest.raises(Exception, match=r"listed twice \(http://\[fd00::1\]:80\)"):
        decoded("listen: 127.0.0.1:0\nmodels: {m: {workers: ['http://[fd00::1]', 'http://[FD00:0::1]']}}\n")
