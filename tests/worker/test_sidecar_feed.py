"""The state feed and the drain: what subscribers hear, when, and that they hold nothing up."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from fakes import RawClient, run, until
from scrape import Scrape
from sidecars import CHAT, HELLO, KEY, HeldEngine, found, hop, sidecar, simulated, url_of, worker_settings
from tailrace.proxy.watch.feed import PATH
from tailrace.worker import state_feed
from tailrace.worker.sidecar import running


class Reader:
    """Reads a feed; `told` are its states so far, `beats` counts the signs of life behind the last one."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.beats = 0
        self.ended = False

    async def read(self, client: RawClient, headers: dict[str, str] | None = None) -> None:
        await client.request("GET", PATH, b"", headers)
        head = await client.read_head()
        assert head.status == 200
        assert head.header("content-type") == "application/x-ndjson"
        while (chunk := await client.read_chunk()) is not None:
            if not chunk[0]:
                self.ended = True
                return
            if chunk[0] == b"\n":
                self.beats += 1
            else:
                self.told.append(orjson.loads(chunk[0]))
                self.beats = 0


def reading(client: RawClient, headers: dict[str, str] | None = None) -> tuple[Reader, asyncio.Task[None]]:
    reader = Reader()
    return reader, asyncio.ensure_future(reader.read(client, headers))


def test_a_subscriber_hears_at_once_and_then_of_changes():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), "concurrency: 1") as process:
            url = url_of(process)
            async with RawClient(url) as client, RawClient(url) as one, RawClient(url) as two:
                reader, task = reading(client)
                await until(lambda: reader.told)
                assert process.service.active == 0
                assert Scrape(process).value("requests_active") == 0
                first = reader.told[0]
                assert (first["ready"], first["dead"], first["draining"]) == (True, False, False)
                assert (first["running"], first["waiting"], first["queued"]) == (0, 0, 0)
                assert first["models"] == [{"id": "m", "parent": None, "max_length": None}]
                for other in (one, two):
                    await other.request("POST", CHAT, orjson.dumps(HELLO))
                await until(lambda: (reader.told[-1]["running"], reader.told[-1]["queued"]) == (1, 1))
                assert all("models" not in line for line in reader.told[1:])
                engine.release(2)
                await until(lambda: (reader.told[-1]["running"], reader.told[-1]["queued"]) == (0, 0))
                task.cancel()

    run(body())


def test_the_death_of_the_engine_is_not_gathered(monkeypatch: pytest.MonkeyPatch):
    # Only what is urgent is told before a test would run out of time.
    monkeypatch.setattr(state_feed, "GATHER", 60.0)
    monkeypatch.setattr(state_feed, "BEAT", 60.0)

    async def body():
        async with simulated() as sim, sidecar(found(sim.url, failures=1)) as process, RawClient(url_of(process)) as it:
            reader, task = reading(it)
            await until(lambda: reader.told)
            process.report._gate_changed()
            await sim.close()
            await until(lambda: reader.told[-1]["dead"])
            assert reader.told[-1]["ready"] is False
            assert reader.told[-1]["reason"]
            task.cancel()

    run(body())


def test_signs_of_life_come_where_nothing_changes_and_the_state_now_and_then():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url)) as process, RawClient(url_of(process)) as client:
            reader, task = reading(client)
            await until(lambda: reader.beats >= 3)
            assert reader.told[0]["heartbeat"] == 0.1
            count = len(reader.told)
            await until(lambda: len(reader.told) >= count + 2)
            task.cancel()
            await task_over(task)
            await client.close()
            await until(lambda: process.feed.subscribers == 0)
            # Nobody is left whose life it would be a sign for.
            await until(lambda: process.feed._pulse is None)

    run(body())


async def task_over(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def test_a_change_in_a_calm_is_told_in_its_own_moment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state_feed, "BEAT", 60.0)
    monkeypatch.setattr(state_feed, "REPEAT", 600.0)

    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url)) as process, RawClient(url_of(process)) as client:
            reader, task = reading(client)
            await until(lambda: reader.told)
            for gather, lines in ((60.0, 1), (0.0, 2)):
                monkeypatch.setattr(state_feed, "GATHER", gather)
                process.report._gate_changed()
                await until(lambda: not any(one.due.is_set() for one in process.feed._subscribers))
                await asyncio.sleep(0.02)
                assert len(reader.told) == lines
            task.cancel()

    run(body())


def test_a_gathered_change_is_told_with_the_next_beat(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state_feed, "REPEAT", 600.0)
    monkeypatch.setattr(state_feed, "GATHER", 600.0)

    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url)) as process, RawClient(url_of(process)) as client:
            reader, task = reading(client)
            await until(lambda: reader.told)
            process.report._gate_changed()
            await until(lambda: len(reader.told) == 2)
            task.cancel()

    run(body())


def test_a_change_of_models_is_told_whole():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url, models=0.05)) as process:
            async with RawClient(url_of(process)) as client:
                reader, task = reading(client)
                await until(lambda: reader.told)
                engine.models = [{"id": "m", "parent": None}, {"id": "lora", "parent": "m"}]
                await until(lambda: any("models" in line for line in reader.told[1:]))
                line = next(line for line in reader.told[1:] if "models" in line)
                assert [(model["id"], model["parent"]) for model in line["models"]] == [("m", None), ("lora", "m")]
                task.cancel()

    run(body())


def test_a_reader_that_leaves_or_does_not_read_costs_nothing():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url)) as process:
            client = await RawClient.connect(url_of(process))
            reader, task = reading(client)
            await until(lambda: reader.told)
            (connection,) = process.service.connections
            connection.pause_writing()
            count = len(reader.told)
            for _ in range(20):
                process.report._gate_changed()
                process.feed._wake(True)
                await asyncio.sleep(0)
            await asyncio.sleep(0.15)
            assert len(reader.told) <= count + 1
            connection.resume_writing()
            await until(lambda: len(reader.told) > count + 1)
            task.cancel()
            await client.close()
            await until(lambda: process.feed.subscribers == 0)
            assert process.service.active == 0

    run(body())


def test_a_paused_reader_that_leaves_is_forgotten():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url)) as process:
            client = await RawClient.connect(url_of(process))
            reader, task = reading(client)
            await until(lambda: reader.told)
            (connection,) = process.service.connections
            connection.pause_writing()
            process.feed._wake(True)
            await asyncio.sleep(0.05)
            task.cancel()
            client.rst()
            await until(lambda: process.feed.subscribers == 0)
            await client.close()

    run(body())


def test_a_reload_ends_feeds_so_that_the_old_chain_can_go():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url), f"hop_key: {KEY}") as process:
            async with RawClient(url_of(process)) as client:
                reader, _task = reading(client, hop())
                await until(lambda: reader.told)
                await process.load(worker_settings(found(sim.url), f"hop_key: {KEY}"))
                await until(lambda: reader.ended)

    run(body())


def test_a_drain_is_told_at_once_and_lets_running_calls_finish():
    async def body():
        settings = worker_settings("{url: 'http://127.0.0.1:1'}")
        assert settings.pre_stop == 0
        async with HeldEngine() as engine:
            async with sidecar(found(engine.url), "concurrency: 1") as process:
                url = url_of(process)
                async with (
                    RawClient(url) as client,
                    RawClient(url) as one,
                    RawClient(url) as two,
                    RawClient(url) as new,
                ):
                    reader, _task = reading(client)
                    await until(lambda: reader.told)
                    for other in (one, two):
                        await other.request("POST", CHAT, orjson.dumps(HELLO))
                    await until(lambda: process.gate.waiting == 1)
                    # The head of this one is there before the drain, its end comes after.
                    await new.send(b"POST %b HTTP/1.1\r\nhost: w\r\n" % CHAT.encode())
                    await asyncio.sleep(0.01)
                    drain = asyncio.ensure_future(process.drain(asyncio.Event()))
                    await until(lambda: reader.told[-1]["draining"])
                    assert reader.told[-1]["ready"] is False
                    assert process.unready()
                    await new.send(b"content-length: 2\r\n\r\n{}")
                    refused = await new.read_answer()
                    assert refused.status == 503
                    assert refused.json()["error"]["code"] == "worker_draining"
                    assert refused.header("x-should-retry") == "true"
                    assert int(refused.header("retry-after") or 0) >= 1
                    assert (refused.header("x-tailrace-load") or "").endswith(";unsent")
                    assert not drain.done()
                    engine.release(2)
                    for other in (one, two):
                        assert (await other.read_answer()).status == 200
                    await drain
                    await until(lambda: reader.ended)

    run(body())


def test_an_operator_drains_and_brings_back():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url)) as process, RawClient(url_of(process)) as client:
            (worker,) = process.workers()
            worker.drained = True
            worker.changed()
            answer = await client.post(CHAT, HELLO)
            assert answer.status == 503
            assert answer.json()["error"]["code"] == "worker_draining"
            worker.drained = False
            worker.changed()
            assert (await client.post(CHAT, HELLO)).status == 200

    run(body())


def test_the_feed_tells_of_a_start_from_the_beginning():
    async def body():
        async with running(worker_settings(found("http://127.0.0.1:1"))) as process:
            async with RawClient(url_of(process)) as client:
                reader, task = reading(client)
                await until(lambda: reader.told)
                assert reader.told[0]["ready"] is False
                assert reader.told[0]["phase"] in ("starting", "dead")
                task.cancel()

    run(body())
