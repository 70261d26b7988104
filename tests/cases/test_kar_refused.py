"""A request that is refused by its head, or for want of one, behind good ones: their answers come first (KAR-08)."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from fakes import chat_answer, json_answer, run, sse_answer, stream_of
from scrape import Scrape
from tailrace.proxy.outcome import Ending

from cases.edge import CHUNKED, GET, post
from cases.scene import scene, until
from cases.scripts import silent

BAD = {
    "no HTTP": (b"NONSENSE\r\n\r\n", 400),
    "no host": (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
    "a large head": (b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    "too long": (post(b"content-length: 99999999\r\n", b""), 413),
    "no chunk": (post(CHUNKED, b"zz\r\n"), 400),
    "chunks that are too long": (post(CHUNKED, b"2000\r\n" + b"x" * 0x2000 + b"\r\n"), 413),
    "chunks that break off": (post(CHUNKED, b"1\r\n{\r\nzz\r\n"), 400),
}
LIMITS = "limits: {body: 4096, head: 65536}"


def numbered(number, *, stream=False):
    body = orjson.dumps({"model": "m", "messages": [], "n": number, "stream": stream})
    return post(b"content-length: %d\r\n" % len(body), body)


GOOD = [numbered(0), numbered(1, stream=True), numbered(2), GET]


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("name", BAD)
def test_KAR_08_good_requests_before_a_bad_one_are_answered(name, joined):
    bad, status = BAD[name]

    async def body():
        go = asyncio.Event()

        async def script(conn, request):
            await go.wait()
            number = str(request.json()["n"])
            await conn.send(sse_answer(stream_of([number])) if number == "1" else json_answer(chat_answer(number)))

        async with scene(script, more=LIMITS) as s:
            client = await s.client()
            for data in [b"".join([*GOOD, bad])] if joined else [*GOOD, bad]:
                await client.send(data)
                await asyncio.sleep(0.01)
            (connection,) = s.process.service.connections
            await until(lambda: connection._lingering, "the refusal")
            await client.send(numbered(7))
            go.set()
            answers = [await client.read_answer() for _ in range(4)]
            assert [(answer.status, answer.complete) for answer in answers] == [(200, True)] * 4
            assert [b'"%d"' % number in answers[number].body for number in range(3)] == [True] * 3
            assert [answer.header("connection") for answer in answers] == [None] * 4
            last = await client.read_answer()
            assert (last.status, last.header("connection")) == (status, "close")
            assert "message" in last.json()["error"]
            assert await client.read_until_close() == b""
            assert len(s.upstream.requests) == 3
            await s.at_rest()
            # What never became a call is counted as such, and no plugin hears of it.
            became_one = name not in ("no HTTP", "a large head")
            assert [each.status for each in s.witness.outcomes if each.ending is Ending.REFUSED] == [
                status
            ] * became_one
            scrape = Scrape(s.process)
            assert scrape.value("requests_total", route="unparsed", code=f"{status}") == (None if became_one else 1)
            assert scrape.value("requests_total", code=f"{status}") == 1
            assert scrape.value("faults_total", whose="client") == 1

    run(body())


def test_KAR_08_too_many_pipelined_requests():
    async def body():
        go = asyncio.Event()

        async def script(conn, request):
            await go.wait()
            await conn.send(json_answer(chat_answer("x")))

        async with scene(script) as s:
            client = await s.client()
            await client.send(numbered(0))
            await s.upstream.asked()
            await client.send(numbered(0) * 20)
            go.set()
            statuses = [(await client.read_answer()).status for _ in range(18)]
            assert statuses == [200] * 17 + [429]
            assert await client.read_until_close() == b""

    run(body())


def test_KAR_08_a_refusal_waits_for_a_client_that_takes_no_answers():
    async def body():
        async with scene(json_answer(chat_answer("x" * 1_000_000)), more="timeouts: {client_head: 0.3}") as s:
            client = await s.client()
            await client.send(numbered(0) * 14)
            (connection,) = s.process.service.connections
            await until(lambda: connection.paused and connection.call is None, "backpressure")
            await client.send(b"GET /v1/models HTTP/1.1\r\nhost")
            await asyncio.sleep(0.8)
            for _ in range(14):
                assert (await client.read_answer()).status == 200
            assert (await client.read_answer()).status == 408
            assert await client.read_until_close() == b""

    run(body())


def test_KAR_08_behind_a_request_that_closes_nothing_more_is_answered():
    async def body():
        async with scene(json_answer(chat_answer("x"))) as s:
            client = await s.client()
            await client.send(numbered(0).replace(b"host", b"connection: close\r\nhost") + b"NONSENSE\r\n\r\n")
            assert (await client.read_answer()).status == 200
            assert await client.read_until_close() == b""

    run(body())


def test_KAR_08_nothing_is_left_of_a_refusal_whose_client_left():
    async def body():
        async with scene(silent) as s:
            client = await s.client()
            await client.send(numbered(0) + numbered(1) + b"NONSENSE\r\n\r\n")
            await s.upstream.asked()
            await client.close()
            assert (await s.outcome()).ending is Ending.CLIENT_GONE

    run(body())
