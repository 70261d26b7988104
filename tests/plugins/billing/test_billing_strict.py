"""`durability: strict`: the end of an answer leaves when its record is on disk, or after a while."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from billed import Scene, billed, cost, stream, unary, unasked
from fakes import CHAT, PATH, RawClient, decoded, run, sse_answer, until
from tailrace.proxy.ledger.disk import Disk

STREAM = {**CHAT, "stream": True}
STRICT = ", durability: strict, strict_wait: 20s"
PROMPT = ", durability: strict, strict_wait: 0.2s"


class Stuck:
    """Holds the disk's syncs back until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.go.set()
        sync = Disk.sync

        def slow(disk: Disk, fd: int) -> None:
            self.go.wait(30)
            sync(disk, fd)

        monkeypatch.setattr(Disk, "sync", slow)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Any:
    stuck = Stuck(monkeypatch)
    yield stuck
    stuck.go.set()


@asynccontextmanager
async def strict(folder: Path, stuck: Stuck, script: Any, more: str = STRICT, **rest: Any) -> AsyncIterator[Scene]:
    """The scene with a disk that stands still from now on, and works again at its end."""
    try:
        async with billed(folder, script, more=more, **rest) as scene:
            stuck.go.clear()
            yield scene
            stuck.go.set()
    finally:
        stuck.go.set()


def waiting(scene: Scene) -> int:
    return len(scene.billing._waiting._held)  # type: ignore[union-attr]


async def at_rest(scene: Scene) -> None:
    service = scene.process.service
    workers = scene.process.roster.workers
    await until(
        lambda: (
            not service.active
            and not service.memory.used
            and all(each.inflight == 0 and each.connections.open == each.connections.resting for each in workers)
        )
    )


def test_a_whole_answer_is_held_until_its_record_is_on_disk(tmp_path: Path, stuck: Stuck) -> None:
    async def main() -> None:
        async with strict(tmp_path, stuck, unary(9, 3)) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(CHAT))
            await until(lambda: waiting(scene) == 1)
            reading = asyncio.ensure_future(scene.client.read_some())
            await asyncio.sleep(0.1)
            assert not reading.done()
            stuck.go.set()
            assert (await reading).startswith(b"HTTP/1.1 200")
            assert (await scene.record()).amount == cost(9, 3)
            assert scene.value("strict_overdue_total") == 0
            assert scene.value("strict_held_seconds_total") >= 0.1
            await at_rest(scene)

    run(main())


@pytest.mark.parametrize("running", [True, False])
def test_of_a_stream_only_its_last_event_is_held(tmp_path: Path, stuck: Stuck, running: bool) -> None:
    events = stream(5, running=running)
    shown = unasked(events)
    last = b"data: [DONE]\n\n"

    async def main() -> None:
        async with strict(tmp_path, stuck, sse_answer(events)) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(STREAM))
            await scene.client.read_head()
            got = b""
            while len(got) < len(shown) - len(last):
                chunk = await scene.client.read_chunk()
                assert chunk is not None
                got += chunk[0]
            assert got == shown.removesuffix(last)
            assert waiting(scene) == 1
            reading = asyncio.ensure_future(scene.client.read_chunk())
            await asyncio.sleep(0.1)
            assert not reading.done()
            stuck.go.set()
            assert await reading == (last, b"e\r\n" + last + b"\r\n")
            assert await scene.client.read_chunk() == (b"", b"0\r\n\r\n")
            # The connection is good for another.
            assert (await scene.client.post(PATH, STREAM)).body == shown
            await scene.records(2)
            await at_rest(scene)
            assert len(scene.upstream.connections) <= 2

    run(main())


@pytest.mark.parametrize("streams", [True, False])
def test_after_a_while_it_leaves_all_the_same_and_is_counted(tmp_path: Path, stuck: Stuck, streams: bool) -> None:
    async def main() -> None:
        async with strict(tmp_path, stuck, sse_answer(stream(5)) if streams else unary(9, 5), PROMPT) as scene:
            got = await scene.client.post(PATH, {**CHAT, "stream": streams})
            assert (got.status, got.complete) == (200, True)
            assert scene.value("strict_overdue_total") == 1
            stuck.go.set()
            assert (await scene.record()).amount == cost(9, 5)
            await at_rest(scene)

    run(main())


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("reset", [True, False])
def test_a_client_may_leave_meanwhile(tmp_path: Path, stuck: Stuck, streams: bool, reset: bool) -> None:
    """What was settled stays settled; nothing is sent to anybody, and nothing is leaked."""

    async def main() -> None:
        async with strict(tmp_path, stuck, sse_answer(stream(5)) if streams else unary(9, 5)) as scene:
            await scene.client.request("POST", PATH, orjson.dumps({**CHAT, "stream": streams}))
            await until(lambda: waiting(scene) == 1)
            if reset:
                scene.client.rst()
            await scene.client.close()
            await at_rest(scene)
            stuck.go.set()
            record = await scene.record()
            assert (record.amount, record.ending) == (cost(9, 5), "completed")
            await until(lambda: waiting(scene) == 0)

    run(main())


def test_refusals_and_answers_that_break_off_are_not_held(tmp_path: Path, stuck: Stuck) -> None:
    async def script(conn, request):
        if request.json()["stream"]:
            await conn.send(sse_answer(stream(5)[:3]))
            conn.close()
        else:
            await conn.send(b"HTTP/1.1 400 No\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")

    async def main() -> None:
        async with strict(tmp_path, stuck, script) as scene:
            assert (await scene.client.post(PATH, {**CHAT, "stream": False})).status == 400
            assert not (await scene.client.post(PATH, STREAM)).complete
            stuck.go.set()
            await scene.records(2)

    run(main())


def test_many_are_let_go_together(tmp_path: Path, stuck: Stuck) -> None:
    async def main() -> None:
        async with strict(tmp_path, stuck, [unary(9, 3), sse_answer(stream(3))] * 20) as scene:
            clients = [await RawClient.connect(scene.process.doors[0].shown) for _ in range(20)]
            asked = [asyncio.ensure_future(client.post(PATH, STREAM)) for client in clients]
            await until(lambda: waiting(scene) == 20)
            assert not any(each.done() for each in asked)
            stuck.go.set()
            assert {(got.status, got.complete) for got in await asyncio.gather(*asked)} == {(200, True)}
            await scene.records(20)
            for client in clients:
                await client.close()
            await at_rest(scene)

    run(main())


def test_a_gateway_that_drains_waits_for_what_is_held(tmp_path: Path, stuck: Stuck) -> None:
    async def main() -> None:
        async with strict(tmp_path, stuck, unary(9, 3), top="pre_stop: 0\n") as scene:
            await scene.client.request("POST", PATH, orjson.dumps(CHAT))
            await until(lambda: waiting(scene) == 1)
            draining = asyncio.ensure_future(scene.process.drain(asyncio.Event()))
            await asyncio.sleep(0.1)
            assert not draining.done()
            stuck.go.set()
            got = await scene.client.read_answer()
            assert (got.status, got.complete) == (200, True)
            await draining

    run(main())


@pytest.mark.parametrize("left", [True, False])
def test_a_gateway_that_ends_at_once_leaves_nothing_behind(tmp_path: Path, stuck: Stuck, left: bool) -> None:
    """What was settled is on record, and nobody looks at memory that is given back."""
    complaints: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with strict(tmp_path, stuck, unary(9, 3)) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(CHAT))
            await until(lambda: waiting(scene) == 1)
            if left:
                await scene.client.close()
                await at_rest(scene)
        await asyncio.sleep(0.05)
        [record] = scene.in_log()
        assert record.amount == cost(9, 3)

    run(main())
    assert complaints == []


def test_a_chain_that_is_replaced_lets_go_of_what_it_holds(tmp_path: Path, stuck: Stuck) -> None:
    async def main() -> None:
        async with strict(tmp_path, stuck, unary(9, 3)) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(CHAT))
            await until(lambda: waiting(scene) == 1)
            await scene.process.load(decoded(scene.yaml.replace("20s", "10s")))
            stuck.go.set()
            assert (await scene.client.read_answer()).status == 200
            await scene.record()

    run(main())
