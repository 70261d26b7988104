"""Lifecycle within one process: draining, reloads, and calls that wait meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import orjson
import pytest
from fakes import GOOD, RawClient, Upstream, chat_chunk, chunked, decoded, gateway, run, sse_head, yaml_for
from tailrace.proxy.fault import Reject
from tailrace.proxy.pipeline import ChainError
from tailrace.proxy.plugin import Plugin

from cases.scene import CHAT, DONE, FINISH, PATH, ROLE, STREAM, scene, until
from cases.witness import Config


class Gate:
    """A stream that begins, waits for `open` and then ends well."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, conn, request):
        if not request.json().get("stream"):
            await conn.send(GOOD)
            return
        await conn.send(sse_head() + chunked(ROLE) + chunked(chat_chunk("a")))
        await self.open.wait()
        await conn.send(b"".join(chunked(piece) for piece in (FINISH, DONE, b"")))


async def begin(scene):
    client = await scene.begin(STREAM)
    await client.read_until(b'"a"')
    return client


def test_LIF_01_streams_finish_and_connections_say_that_they_close():
    async def body():
        gate = Gate()
        async with scene(gate, more="pre_stop: 0.3s") as s:
            streams = [await begin(s) for _ in range(20)]
            idle = await s.client()
            assert (await idle.get("/readyz")).status == 200
            hurry = asyncio.Event()
            ending = asyncio.get_running_loop().create_task(s.process.drain(hurry))
            await asyncio.sleep(0)
            got = await idle.get("/readyz")
            assert (got.status, got.header("connection")) == (503, "close")
            assert await idle.read_until_close() == b""
            got = await s.ask(CHAT)
            assert (got.status, got.header("connection")) == (200, "close")
            resting = await s.client()
            await until(lambda: len(s.process.service.connections) == 21, "a connection that asks for nothing")
            assert await resting.read_until_close() == b""
            with pytest.raises(OSError):
                await RawClient.connect(s.url)
            assert not ending.done()
            gate.open.set()
            for client in streams:
                assert (await client.read_until(b"0\r\n\r\n")).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
                assert await client.read_until_close() == b""
            await ending

    run(body())


def test_LIF_03_who_still_comes_while_it_leaves_is_served():
    async def body():
        async with scene(GOOD, more="pre_stop: 1h") as s:
            hurry = asyncio.Event()
            ending = asyncio.get_running_loop().create_task(s.process.drain(hurry))
            await asyncio.sleep(0)

            async def late():
                async with RawClient(s.url) as client:
                    got = await client.post(PATH, CHAT)
                    return got.status, got.header("connection"), await client.read_until_close()

            for _ in range(20):
                assert await late() == (200, "close", b"")
            assert await asyncio.gather(*(late() for _ in range(50))) == 50 * [(200, "close", b"")]
            async with RawClient(s.url) as client:
                got = await client.get("/readyz")
                assert (got.status, got.json()["reasons"]) == (503, ["shutting down"])
            assert not ending.done()
            hurry.set()
            await ending
            with pytest.raises(OSError):
                await RawClient.connect(s.url)
            assert len(s.upstream.requests) == 70

    run(body())


def test_LIF_01_what_does_not_finish_in_time_is_told_so():
    async def body():
        async def silent(conn, request):
            await conn.wait_closed()

        async with scene(Gate(), silent, more="pre_stop: 0\ndrain: 0.2s") as s:
            stream = await begin(s)
            waiting = await s.begin(CHAT)
            await s.upstream.asked(2)
            await s.process.drain(asyncio.Event())
            rest = await stream.read_until_close()
            assert b'"code":"server_shutting_down"' in rest
            assert b"[DONE]" not in rest
            got = await waiting.read_answer()
            assert (got.status, got.json()["error"]["code"]) == (503, "server_shutting_down")

    run(body())


def test_LIF_04_reloads_under_load_lose_nothing():
    async def body():
        async with AsyncExitStack() as stack:
            upstreams = [await stack.enter_async_context(Upstream(Gate())) for _ in range(3)]

            def settings(turn):
                chosen = [upstreams[(turn + k) % 3] for k in range(1 + turn % 2)]
                plugins = "[cases.witness:Witness]" if turn % 3 else "[]"
                urls = ", ".join(f'"{upstream.url}"' for upstream in chosen)
                key = f"key-{turn % 4}"
                return decoded(
                    "listen: 127.0.0.1:0\n"
                    f"pools: {{p: {{workers: [{urls}], api_key: {key}}}}}\n"
                    f"models: {{m: {{pool: p}}}}\nplugins: {plugins}\n"
                )

            process = await stack.enter_async_context(gateway(yaml_for(upstreams[0])))
            url = process.doors[0].shown
            stop = asyncio.Event()
            answered = []

            async def load():
                async with RawClient(url) as client:
                    while not stop.is_set():
                        answered.append((await client.post(PATH, CHAT)).status)

            streams = [RawClient(url) for _ in range(5)]
            for client in streams:
                await stack.enter_async_context(client)
                await client.request("POST", PATH, orjson.dumps(STREAM))
                await client.read_until(b'"a"')
            first = process.service.chain
            working = [asyncio.get_running_loop().create_task(load()) for _ in range(4)]
            for turn in range(20):
                await process.load(settings(turn))
                await asyncio.sleep(0.01)
            stop.set()
            await asyncio.gather(*working)
            assert set(answered) == {200}
            assert len(answered) > 40
            assert first.calls.count == 5
            for upstream in upstreams:
                for script in upstream.scripts:
                    script.open.set()
            for client in streams:
                assert b"[DONE]" in await client.read_until(b"0\r\n\r\n")
            await until(lambda: first.calls.count == 0, "the first chain's calls")
            await until(lambda: process.service._retiring == {}, "old chains are kept")
            # What is still open belongs to workers of the last configuration.
            last = {worker.address.shown for worker in process.workers()}
            for upstream in upstreams:
                if upstream.url not in last:
                    await until(
                        lambda u=upstream: all(c.closed_at is not None for c in u.connections), "a retired worker's"
                    )

    run(body())


def test_LIF_04_a_call_that_is_connecting_to_a_removed_worker_goes_on():
    async def body():
        async with Upstream(GOOD) as old, Upstream(GOOD) as new:
            async with gateway(yaml_for(old)) as process, RawClient(process.doors[0].shown) as client:
                (worker,) = process.workers()
                opening, go = asyncio.Event(), asyncio.Event()
                address = worker.address

                class Slow(type(address)):
                    async def open(self, *args):
                        opening.set()
                        await go.wait()
                        await super().open(*args)

                worker.connections.address = Slow.parse(old.url)
                await client.request("POST", PATH, orjson.dumps(CHAT))
                await opening.wait()
                await process.load(decoded(yaml_for(new)))
                go.set()
                assert (await client.read_answer()).status == 200
                assert len(old.requests) == 1
                await until(lambda: all(c.closed_at is not None for c in old.connections), "its connection stayed", 1.0)
                assert (await client.post(PATH, CHAT)).status == 200
                assert len(new.requests) == 1

    run(body())


def test_LIF_04_a_configuration_that_cannot_be_loaded_changes_nothing():
    async def body():
        async with scene(GOOD) as s:
            chain = s.process.service.chain
            with pytest.raises(ChainError, match=r"plugin '.*:WillNotStart' could not start: RuntimeError: no \(at "):
                await s.process.load(decoded(yaml_for(s.upstream, plugins=f"[{__name__}:WillNotStart]")))
            assert s.process.service.chain is chain
            assert (await s.ask(CHAT)).status == 200

    run(body())


class WillNotStart(Plugin[Config]):
    """Fails when it is to begin."""

    Config = Config

    def running(self):
        raise RuntimeError("no")


class Queue(Plugin[Config]):
    """Lets calls wait, and refuses those whose key was revoked while they did."""

    Config = Config
    go: asyncio.Event
    waiting = 0
    revoked = False

    async def on_request(self, call):
        async with call.waiting():
            Queue.waiting += 1
            await Queue.go.wait()

    def recheck(self, call):
        if Queue.revoked:
            raise Reject(401, "invalid_api_key", "This key was revoked.")


@pytest.mark.parametrize("revoked", [True, False])
def test_LIF_06_rules_are_looked_at_again_when_a_wait_ends(revoked):
    async def body():
        Queue.go, Queue.waiting, Queue.revoked = asyncio.Event(), 0, False
        async with scene(GOOD, plugins=f"[{__name__}:Queue, cases.witness:Witness]") as s:
            client = await s.begin(CHAT)
            await until(lambda: Queue.waiting == 1, "the wait")
            Queue.revoked = revoked
            Queue.go.set()
            got = await client.read_answer()
            assert got.status == (401 if revoked else 200)
            assert len(s.upstream.requests) == (not revoked)

    run(body())


def test_LIF_06_a_call_keeps_the_rules_it_began_with_while_it_uploads():
    async def body():
        async with scene(GOOD) as s:
            data = orjson.dumps(CHAT)
            client = await s.client()
            await client.request("POST", PATH, data[:5], {"content-length": str(len(data))})
            await until(lambda: s.process.service.active == 1, "the call")
            old = s.process.service.chain
            await s.process.load(decoded(yaml_for(s.upstream, plugins="[cases.witness:Witness]")))
            await client.send(data[5:])
            assert (await client.read_answer()).status == 200
            assert s.witness.calls[0].chain is old

    run(body())
