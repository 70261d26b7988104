"""Billing where there is no room, where the chain changes, and where it is asked for some calls only."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
from billed import billed, cost, stream, unary
from fakes import CHAT, PATH, RawClient, decoded, json_answer, run, sse_answer, sse_head, until
from tailrace.proxy.attempt import Attempt
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Fault
from tailrace.proxy.ledger.disk import Disk
from tailrace.proxy.plugin import Plugin, Target
from tailrace.proxy.testing.answers import chunked

STREAM = {**CHAT, "stream": True}
SLOTS = 4
SMALL = f", records_in_memory: {SLOTS}"


class FullDisk:
    """A disk without room, as long as `full` says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        write = Disk.write

        def tried(disk: Disk, fd: int, content: bytes, offset: int) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(disk, fd, content, offset)

        monkeypatch.setattr(Disk, "write", tried)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


@pytest.mark.parametrize("full", ["refuse", "serve"])
@pytest.mark.parametrize("streams", [True, False])
def test_a_full_disk_stops_nothing_until_memory_is_full(
    tmp_path: Path, disk: FullDisk, full: str, streams: bool
) -> None:
    asked = {**CHAT, "stream": streams}

    async def main() -> None:
        async with billed(
            tmp_path, sse_answer(stream(3)) if streams else unary(9, 3), more=f"{SMALL}, full: {full}"
        ) as scene:
            assert (await scene.client.post(PATH, asked)).status == 200
            await scene.record()
            await until(lambda: scene.billing._clerk._ring.room == SLOTS)
            disk.full = True
            for _ in range(SLOTS):
                assert (await scene.client.post(PATH, asked)).status == 200
            await until(lambda: scene.value("troubles") == 1)
            await until(lambda: scene.value("waiting") == SLOTS)
            refuses = full == "refuse"
            ready = await scene.client.get("/readyz")
            assert (b"billing: the ledger cannot be written: No space left" in ready.body) == refuses
            assert ready.status == (503 if refuses else 200)
            got = await scene.client.post(PATH, asked)
            assert scene.value("unrecorded_total") == 1
            if refuses:
                assert (got.status, got.json()["error"]["code"]) == (503, "billing_unavailable")
                assert got.header("retry-after") == "1"
                assert len(scene.upstream.requests) == 1 + SLOTS
            else:
                assert (got.status, got.complete) == (200, True)
            disk.full = False
            await until(lambda: scene.value("troubles") == 0)
            assert (await scene.client.get("/readyz")).status == 200
            assert (await scene.client.post(PATH, asked)).status == 200
            assert {record.amount for record in await scene.records(2 + SLOTS)} == {cost(9, 3)}

    run(main())


def test_room_is_for_what_is_open_too(tmp_path: Path, disk: FullDisk) -> None:
    """A call beyond is refused before its worker is asked; one that ends makes room."""

    async def main() -> None:
        go = asyncio.Event()

        async def script(conn, request):
            await go.wait()
            await conn.send(unary(9, 3))

        async with billed(tmp_path, script, more=SMALL) as scene:
            clients = [await RawClient.connect(scene.process.doors[0].shown) for _ in range(SLOTS)]
            asked = [asyncio.ensure_future(client.post(PATH, CHAT)) for client in clients]
            await scene.upstream.asked(SLOTS)
            assert (await scene.client.post(PATH, CHAT)).status == 503
            assert len(scene.upstream.requests) == SLOTS
            assert all(worker.inflight == SLOTS for worker in scene.process.roster.workers)
            go.set()
            assert {got.status for got in await asyncio.gather(*asked)} == {200}
            await scene.records(SLOTS)
            await until(lambda: scene.billing._clerk._ring.room == SLOTS)
            assert (await scene.client.post(PATH, CHAT)).status == 200
            for client in clients:
                await client.close()

    run(main())


@pytest.mark.parametrize("kept", [True, False], ids=["billing stays", "billing goes"])
def test_a_chain_that_changes_in_the_middle_of_a_stream_keeps_its_record(tmp_path: Path, kept: bool) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def script(conn, request):
            await conn.send(sse_head())
            events = stream(8)
            for number, each in enumerate(events):
                await conn.send(chunked(each))
                if number == 4 and len(scene.upstream.requests) == 1:
                    await go.wait()
            await conn.send(chunked(b""))

        async with billed(tmp_path, script) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(STREAM))
            await scene.client.read_until(b"t4 ")
            entry = scene.yaml.partition("plugins:\n")[2].partition("\nstate")[0]
            other = (
                entry.replace("prices.yaml", "prices.yaml, unpriced: free") if kept else "  - cors: {origins: ['*']}"
            )
            await scene.process.load(decoded(scene.yaml.replace(entry, other)))
            go.set()
            await scene.client.read_until(b"0\r\n\r\n")
            assert (await scene.client.post(PATH, STREAM)).status == 200
            if kept:
                for record in await scene.records(2):
                    assert (record.amount, record.ending) == (cost(9, 8), "completed")
            else:
                await scene.process.load(decoded(scene.yaml))
                record = await scene.record()  # by the keeper that came after
                assert (record.amount, record.ending) == (cost(9, 8), "completed")

    run(main())


def test_only_the_calls_that_are_meant_are_billed(tmp_path: Path) -> None:
    async def main() -> None:
        scripts = [unary(9, 3), json_answer({"data": [], "usage": {"prompt_tokens": 5, "total_tokens": 5}})] * 2
        async with billed(tmp_path, scripts, terms="  when: {route: [embeddings]}\n") as scene:
            for _ in range(2):
                assert (await scene.client.post(PATH, CHAT)).status == 200
                assert (await scene.client.post("/v1/embeddings", {"model": "m", "input": "a"})).status == 200
            assert {(record.route, record.amount) for record in await scene.records(2)} == {("embeddings", cost(5, 0))}

    run(main())


@dataclass(frozen=True)
class Config:
    pass


class Elsewhere(Plugin[Config]):
    """After a fault another model, and then, where that is slow, a further attempt."""

    Config = Config

    def next_target(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> Target | None:
        return Target(model="second") if len(tries) == 1 else None

    def patience(self, call: Call, tries: Sequence[Attempt]) -> float | None:
        return 0.05 if len(tries) == 2 else None


def test_attempts_at_once_are_never_of_two_prices(tmp_path: Path) -> None:
    """What is charged is the price of the model that answered, whichever was asked last."""
    prices = (
        "currency: EUR\nprices: [{model: m, prompt: 1, completion: 1}, {model: second, prompt: 50, completion: 50}]\n"
    )

    async def failing(conn, request):
        if len(scene_upstreams[0].requests) == 1:
            await conn.send(json_answer({"error": {"message": "no"}}, 500))
        else:
            await conn.wait_closed()

    async def slow(conn, request):
        await asyncio.sleep(0.3)
        await conn.send(unary(9, 3))

    scene_upstreams = []

    async def main() -> None:
        models = "{m: {workers: [W0]}, second: {workers: [W1]}}"
        before = "- 'test_billing_room:Elsewhere'\n"
        async with billed(tmp_path, failing, slow, models=models, prices=prices, before=before) as scene:
            scene_upstreams.extend(scene.upstreams)
            got = await scene.client.post(PATH, CHAT)
            assert got.status == 200
            record = await scene.record()
            assert (record.model, record.deployment) == ("m", "second")
            assert record.amount == 12 * 50_000

    run(main())
