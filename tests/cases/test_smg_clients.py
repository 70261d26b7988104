"""HTTP edge: slow, heavy and pipelining clients."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from fakes import answer, chat_answer, chunked, json_answer, run, sse_head, stream_of

from cases.edge import BODY, CHUNKED, CHUNKS, GET, LENGTH, answers_in, post, refused
from cases.scene import CHAT, PATH, ROLE, STREAM, chat_chunk, scene, until

GOOD = json_answer(chat_answer("hi"))


@pytest.mark.parametrize("silent", [b"", b"GET /v1/models HTTP/1.1\r\nhost"], ids=["nothing", "half a head"])
def test_SMG_09_slow_heads(silent):
    async def body():
        async with scene(GOOD, more="timeouts: {client_head: 0.4s, idle: 0.4s}") as s:
            slow = [await s.client() for _ in range(20)]
            for client in slow:
                await client.send(silent)
            dripping = await s.client()
            await dripping.send(b"GET /v1/models HTTP/1.1\r\n")
            ended = asyncio.get_running_loop().create_task(dripping.read_until_close())
            while not ended.done():
                # Never silent for long, and never finished.
                await dripping.send(b"x-a: b\r\n")
                await asyncio.sleep(0.02)
                assert (await s.ask(CHAT)).status == 200
            assert [answer.status for answer in answers_in(ended.result())] == [408]
            for client in slow:
                shown = answers_in(await client.read_until_close())
                assert [answer.status for answer in shown] == ([408] if silent else [])

    run(body())


@pytest.mark.parametrize("used", [False, True])
def test_SMG_09_a_head_in_single_bytes_has_the_same_time_in_all(used):
    async def body():
        async with scene(GOOD, more="timeouts: {client_head: 0.4s, idle: 5s}") as s:
            client = await s.client()
            if used:
                assert (await client.post(PATH, CHAT)).status == 200
            ended = asyncio.get_running_loop().create_task(client.read_until_close())
            sent = 0
            with suppress(ConnectionError):
                for byte in post(b"x-a: " + b"b" * 10_000 + b"\r\n" + LENGTH):
                    if ended.done():
                        break
                    await client.send(bytes([byte]))
                    await asyncio.sleep(0.02)
                    sent += 1
            assert [answer.status for answer in answers_in(await ended)] == [408]
            assert sent < 10_000

    run(body())


@pytest.mark.parametrize("used", [False, True])
def test_SMG_09_empty_lines_are_no_head_and_no_life(used):
    # RFC 9112, 2.2: empty lines before a request are ignored.
    async def body():
        async with scene(GOOD, more="timeouts: {client_head: 0.3s, idle: 1500ms}") as s:
            client, dripping = await s.client(), await s.client()
            if used:
                assert (await client.post(PATH, CHAT)).status == 200
                assert (await dripping.post(PATH, CHAT)).status == 200
            ended = asyncio.get_running_loop().create_task(dripping.read_until_close())
            for piece in (b"\r\n", b"\n", b"\r"):
                await client.send(piece)
                await dripping.send(piece)
                await asyncio.sleep(0.15)
            assert (await client.post(PATH, CHAT)).status == 200
            await client.send(b"\r\n" + post())
            assert (await client.read_answer()).status == 200
            with suppress(ConnectionError):
                while not ended.done():
                    await dripping.send(b"\r\n")
                    await asyncio.sleep(0.02)
            assert await ended == b""

    run(body())


@pytest.mark.parametrize("framing", ["content-length: 1000\r\n", "transfer-encoding: chunked\r\n"])
@pytest.mark.parametrize(("pace", "rate"), [("silent", 1), ("dripping", 1 << 20)])
def test_SMG_09_slow_bodies(framing, pace, rate):
    async def body():
        limits = f"timeouts: {{client_body: 0.4s, client_body_rate: {rate}}}"
        async with scene(GOOD, more=limits) as s:
            client = await s.client()
            await client.send(post(framing.encode(), b" " * 900 if "length" in framing else chunked(b" " * 900)))
            ended = asyncio.get_running_loop().create_task(client.read_until_close())
            while not ended.done():
                if pace == "dripping":
                    await client.send(b" " if "length" in framing else b"1\r\n \r\n")
                await asyncio.sleep(0.02)
            shown = answers_in(ended.result())
            assert [answer.status for answer in shown] == [408]
            assert shown[0].error["code"] == "request_timeout"
            assert (await s.ask(CHAT)).status == 200
            assert len(s.upstream.requests) == 1

    run(body())


def test_SMG_09_a_slow_but_steady_body_is_served():
    async def body():
        async with scene(GOOD, more="timeouts: {client_body: 0.4s, client_body_rate: 1}") as s:
            client = await s.client()
            await client.send(post(b"", b"")[:-2] + LENGTH + b"\r\n")
            for at in range(len(BODY)):
                await client.send(BODY[at : at + 1])
                await asyncio.sleep(0.02)
            assert (await client.read_answer()).status == 200

    run(body())


def test_SMG_09_caps_in_all_and_for_each_address():
    async def body():
        limits = "limits: {connections: 6, connections_per_address: 4}"
        async with scene(GOOD, more=limits) as s:
            service = s.process.service
            clients = [await s.client() for _ in range(4)]
            await until(lambda: len(service.connections) == 4, "four connections")
            one_more = await s.client()
            assert await one_more.read_until_close() == b""
            await clients.pop().close()
            await until(lambda: len(service.connections) == 3, "a place")
            assert (await s.ask(CHAT)).status == 200

    run(body())


MASSES = {
    "200 headers": b"".join(b"x-%d: a\r\n" % n for n in range(200)),
    "10,000 headers": b"".join(b"x-%d: a\r\n" % n for n in range(10_000)),
    "a megabyte": b"x-secret: " + b"a" * (1 << 20) + b"\r\n",
    "long name": b"x-" + b"a" * 70_000 + b": b\r\n",
    "5,000 cookies": b"cookie: secret=1\r\n" * 5_000,
}


@pytest.mark.parametrize("mass", MASSES.values(), ids=MASSES)
def test_SMG_10_header_mass(mass):
    async def body():
        async with scene(GOOD) as s:
            shown = await refused(s, post(mass + LENGTH), 431)
            assert b"secret" not in shown.body
            assert b"aaaa" not in shown.body
            assert b"larger than 65536 bytes (`limits.head`) or more than 128 (`limits.headers`)" in shown.body

    run(body())


def test_SMG_10_endless_head():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            await client.send(post()[:40])
            ended = asyncio.get_running_loop().create_task(client.read_until_close())
            while not ended.done():
                await client.send(b"x-a: b\r\n" * 100)
                await asyncio.sleep(0)
            assert [answer.status for answer in answers_in(ended.result())] == [431]

    run(body())


def test_SMG_10_trailers_take_no_memory():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            await client.send(post(CHUNKED, CHUNKS[:-2]))
            for _ in range(4):
                await client.send(b"x-trailer: a\r\n" * 1000)
            await until(lambda: bool(s.process.service.connections), "the connection")
            (connection,) = s.process.service.connections
            assert list(connection._headers) == []
            await client.send(b"\r\n")
            assert (await client.read_answer()).status == 200

    run(body())


def test_SMG_11_pipelining_behind_a_stream():
    async def body():
        go = asyncio.Event()

        async def slow(conn, request):
            await conn.send(sse_head() + chunked(ROLE) + chunked(chat_chunk("a")))
            await go.wait()
            await conn.send(b"".join(chunked(piece) for piece in [*stream_of(["b"])[1:], b""]))

        async with scene(slow) as s:
            client = await s.begin(STREAM)
            await client.send(GET + GET)
            await client.read_until(b'"a"')
            go.set()
            rest = await client.read_until(b"0\r\n\r\n")
            assert b"[DONE]" in rest
            assert b"HTTP/1.1" not in rest
            for _ in "12":
                assert (await client.read_answer()).json()["object"] == "list"

    run(body())


def test_SMG_11_what_waits_behind_a_stream_is_not_run_for_a_client_that_left():
    async def body():
        async def endless(conn, request):
            await conn.send(sse_head() + chunked(ROLE) + chunked(chat_chunk("a")))
            await conn.wait_closed()

        async with scene(endless) as s:
            client = await s.begin(STREAM)
            await client.send(post())
            await client.read_until(b'"a"')
            await client.close()
            await s.outcome()
            await s.at_rest()
            assert len(s.upstream.requests) == 1

    run(body())


def test_SMG_11_a_client_that_pipelines_and_reads_nothing_fills_no_memory():
    async def body():
        big = answer(200, b'{"choices":[],"x":"' + b"x" * 900_000 + b'"}')
        async with scene(big, more="timeouts: {client_write: 60s}") as s:
            client = await s.client()
            await client.send(post() * 14)
            await s.upstream.asked(2)
            await asyncio.sleep(0.2)
            (connection,) = s.process.service.connections
            assert connection.transport.get_write_buffer_size() < 1_500_000
            for _ in range(14):
                assert (await client.read_answer()).complete
            assert len(s.upstream.requests) == 14

    run(body())
