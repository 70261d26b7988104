"""Resources: descriptors, the event loop, what is remembered."""

from __future__ import annotations

import asyncio
import os
import time

import orjson
from fakes import GOOD, RawClient, chat_answer, chat_chunk, chunked, json_answer, run, sse_answer, sse_head, stream_of
from tailrace.proxy import headers, wire

from cases.scene import CHAT, PATH, ROLE, STREAM, scene, until


async def closes_without_end(conn, request):
    await conn.send(sse_head() + b"".join(chunked(piece) for piece in stream_of(["a"])))


async def resets(conn, request):
    await conn.send(sse_head() + chunked(ROLE) + chunked(chat_chunk("a")))
    conn.rst()


async def holds(conn, request):
    await conn.send(sse_head() + chunked(ROLE) + chunked(chat_chunk("a")))
    await conn.wait_closed()


async def by_kind(conn, request):
    """Ends a call in the way that its first message asks for."""
    kinds = {
        "good": sse_answer(stream_of(["a"])),
        "error": json_answer({"error": {"message": "no"}}, 500),
        "refused": json_answer({"error": {"message": "no"}}, 400),
    }
    kind = request.json()["kind"]
    if kind in kinds:
        await conn.send(kinds[kind])
    else:
        await {"unclosed": closes_without_end, "reset": resets, "abort": holds}[kind](conn, request)


def test_RES_03_descriptors_and_pool_places_come_back():
    async def body():
        async with scene(by_kind) as s:
            loop = asyncio.get_running_loop()
            (worker,) = s.process.roster.workers

            async def one(kind):
                client = await RawClient.connect(s.url)
                await client.request("POST", PATH, orjson.dumps(STREAM | {"kind": kind}))
                if kind == "abort":
                    await client.read_until(b'"a"')
                else:
                    await client.read_answer()
                await client.close()

            def taken():
                service = s.process.service
                return (
                    len(service.connections),
                    service.active,
                    worker.inflight,
                    worker.connections.open - worker.connections.resting,
                    len(asyncio.all_tasks(loop)) - len(s.upstream.connections),
                )

            kinds = ("good", "error", "refused", "reset", "abort")
            for kind in kinds:
                await one(kind)
            await asyncio.gather(*(one("unclosed") for _ in range(10)))
            await until(lambda: taken()[:4] == (0, 0, 0, 0), lambda: f"taken: {taken()}")
            tasks, descriptors = len(asyncio.all_tasks(loop)), len(os.listdir("/proc/self/fd"))
            for _ in range(20):
                await asyncio.gather(*(one(kind) for kind in kinds * 3))
            await until(lambda: taken()[:4] == (0, 0, 0, 0), lambda: f"taken: {taken()}")
            await until(
                lambda: len(asyncio.all_tasks(loop)) <= tasks,
                lambda: f"tasks: {len(asyncio.all_tasks(loop))} of {tasks}",
            )
            # Connections that rest are counted in: two for each that was in use at once.
            resting = worker.connections.resting * 2
            await until(
                lambda: len(os.listdir("/proc/self/fd")) <= descriptors + resting,
                lambda: f"descriptors: {len(os.listdir('/proc/self/fd'))} of {descriptors} + {resting}",
            )

    run(body())


def test_RES_04_connections_are_used_again():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            for _ in range(200):
                assert (await client.post(PATH, CHAT)).status == 200
            # The one in use and a spare.
            assert len(s.upstream.connections) <= 2

    run(body())


def test_RES_05_a_large_body_does_not_stop_the_others():
    async def body():
        async with scene(GOOD, more="limits: {body: 40MiB}") as s:
            lags = []
            stop = asyncio.Event()

            async def ticker():
                while not stop.is_set():
                    before = time.monotonic()
                    await asyncio.sleep(0.001)
                    lags.append(time.monotonic() - before)

            ticking = asyncio.get_running_loop().create_task(ticker())
            messages = [{"role": "user", "content": "twenty characters of text " * 40}] * 27_000
            data = orjson.dumps({"model": "m", "messages": messages})
            assert len(data) > 25 << 20
            async with RawClient(s.url) as healthy:
                asked = asyncio.get_running_loop().create_task(s.ask(data))
                while not asked.done():
                    assert (await healthy.get("/healthz")).status == 200
            assert asked.result().status == 200
            stop.set()
            await ticking
            print(f"worst lag: {1000 * max(lags):.0f} ms")
            # The loop also runs the client and the worker, which copy the body; a busy machine counts too.
            assert max(lags) < 3

    run(body())


def test_RES_09_what_is_remembered_of_strangers_is_bounded():
    async def body():
        count = iter(range(1 << 20))

        async def talkative(conn, request):
            lines = b"".join(b"x-%d: %d\r\n" % (n, n) for n in (next(count) for _ in range(50)))
            await conn.send(json_answer(chat_answer("hi"), headers=lines + b"x-long: " + b"y" * 5000 + b"\r\n"))

        async with scene(talkative) as s:
            client = await s.client()
            for n in range(100):
                names = {f"x-{n}-{k}": "v" for k in range(50)} | {"x-" + "n" * 5000: "v"}
                await client.post(PATH, CHAT | {"user": f"u{n}"}, names | {"x-request-id": f"r{n}"})
                await client.post(PATH, CHAT | {"model": f"unknown-{n}"})
                await client.get(f"/v1/unknown/{n}")
            assert 0 < len(headers.request_rules) <= 2048
            assert max(map(len, headers.request_rules)) < 100
            for memory in (wire._lines, wire._names, wire._statuses):
                assert len(memory) <= 1024
                assert max(map(len, memory)) <= 512
            # A full memory begins anew: strangers must not keep the usual names out.
            headers.request_rule(b"accept")
            assert b"accept" in headers.request_rules

    run(body())


def test_RES_09_addresses_are_forgotten():
    async def body():
        async with scene(GOOD, more="limits: {connections_per_address: 50}") as s:
            for _ in range(20):
                assert (await s.ask(CHAT)).status == 200
            await until(lambda: not s.process.service.connections, "the connections")
            assert s.process.service._crowd == {}

    run(body())


def test_RES_11_overload_does_not_reach_the_health_check():
    async def body():
        async with scene(holds, more="limits: {connections: 201}") as s:
            async with RawClient(s.url) as probe:
                assert (await probe.get("/healthz")).status == 200
                streams = [await s.begin(STREAM) for _ in range(200)]
                for client in streams:
                    await client.read_until(b'"a"')
                refused = 0
                for _ in range(50):
                    async with RawClient(s.url) as client:
                        try:
                            await client.request("GET", "/v1/models")
                            refused += not await client.read_until_close()
                        except OSError:
                            refused += 1
                assert refused == 50
                assert (await probe.get("/healthz")).status == 200
                for client in streams:
                    await client.close()

    run(body())
