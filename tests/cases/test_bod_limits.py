"""Request bodies: how large, how slow, how damaged."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib

import orjson
import pytest
import zstandard
from fakes import GOOD, RawClient, chunked, run

from cases.edge import CHUNKED, answers_in, post
from cases.scene import CHAT, PATH, scene, until


def test_BOD_08_large_bodies_are_taken_and_larger_ones_refused_early():
    async def body():
        async with scene(GOOD, more="limits: {body: 8MiB}") as s:
            image = b'{"model":"m","messages":[{"role":"user","content":[{"url":"data:%b"}]}]}' % (b"A" * (8 << 20))
            data = image[: (8 << 20) - 5] + b'"}]}]}'[-5:]
            data = image.replace(b"A" * 200, b"", 1)
            assert len(data) <= 8 << 20
            assert (await s.ask(data)).status == 200
            assert hashlib.sha256(s.upstream.requests[0].body).digest() == hashlib.sha256(data).digest()
            client = await s.client()
            # Refused by its length alone: nothing of the body is sent.
            await client.send(post(b"content-length: %d\r\n" % ((8 << 20) + 1), b""))
            shown = answers_in(await client.read_until_close())
            assert [(answer.status, answer.error["code"]) for answer in shown] == [(413, "request_too_large")]
            assert shown[0].headers["connection"] == "close"

    run(body())


def test_BOD_08_a_client_that_sends_on_can_read_the_refusal():
    async def body():
        async with scene(GOOD, more="limits: {body: 1MiB}") as s:
            client = await s.client()
            await client.send(post(b"content-length: 20000000\r\n", b""))
            for _ in range(200):
                await client.send(b"x" * 100_000)
            shown = answers_in(await client.read_until_close())
            assert [answer.status for answer in shown] == [413]

    run(body())


def test_BOD_08_all_bodies_together_have_a_bound():
    async def body():
        async def silent(conn, request):
            await conn.wait_closed()

        async with scene(silent, more="limits: {body: 1MiB, body_memory: 2MiB}") as s:
            data = b'{"model":"m","messages":[],"x":"%b"}' % (b"x" * 1_000_000)
            for _ in range(2):
                client = await s.client()
                await client.request("POST", PATH, data)
            await s.upstream.asked(2)
            got = await s.ask(data)
            assert (got.status, got.json()["error"]["code"]) == (503, "body_memory_full")
            assert got.header("retry-after") == "1"

    run(body())


def test_BOD_08_a_bomb_counts_by_what_it_becomes():
    async def body():
        zeros = b'{"model":"m","x":"' + b"0" * (20 << 20) + b'"}'
        async with scene(GOOD, more="limits: {body: 16MiB, body_memory: 17MiB}") as s:
            for coding, coded in (("gzip", gzip.compress(zeros)), ("zstd", zstandard.compress(zeros))):
                got = await s.ask(coded, headers={"content-encoding": coding})
                assert (got.status, got.json()["error"]["code"]) == (413, "request_too_large")
            assert s.process.service.memory.used == 0

    run(body())


def test_BOD_08_decoded_bodies_count():
    async def body():
        async def silent(conn, request):
            await conn.wait_closed()

        data = gzip.compress(b'{"model":"m","messages":[],"x":"' + b"0123456789" * 90_000 + b'"}')
        async with scene(silent, more="limits: {body: 1MiB, body_memory: 1MiB}") as s:
            client = await s.client()
            await client.request("POST", PATH, data, {"content-encoding": "gzip"})
            await s.upstream.asked()
            assert s.process.service.memory.used > 900_000
            got = await s.ask(data, headers={"content-encoding": "gzip"})
            assert (got.status, got.json()["error"]["code"]) == (503, "body_memory_full")
            await client.close()

    run(body())


@pytest.mark.parametrize("cut", [1, 20, -1, -10])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_BOD_08_damaged_coded_bodies(coding, cut):
    async def body():
        pack = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}[coding]
        whole = pack(orjson.dumps(CHAT))
        async with scene(GOOD) as s:
            for data in (whole[:cut], whole + b"x", whole + whole, b"", b"\0" * 30):
                got = await s.ask(data, headers={"content-encoding": coding})
                assert (got.status, got.json()["error"]["code"]) == (400, "invalid_request_error")
            assert s.upstream.requests == []

    run(body())


def test_BOD_10_chunked_upload_passing_the_limit():
    async def body():
        async with scene(GOOD, more="limits: {body: 64KiB}") as s:
            client = await s.client()
            await client.send(post(CHUNKED, b""))
            for _ in range(200):
                await client.send(chunked(b"x" * 10_000))
            shown = answers_in(await client.read_until_close())
            assert [(answer.status, answer.error["code"]) for answer in shown] == [(413, "request_too_large")]
            assert s.upstream.requests == []

    run(body())


def test_BOD_10_what_is_still_sent_is_thrown_away_for_a_while():
    # A reset would take the refusal away from a client that has not read it yet.
    async def body():
        async with scene(GOOD, more="limits: {body: 64KiB}") as s:
            client = await s.client()
            await client.send(post(CHUNKED, chunked(b"x" * 70_000)))
            assert [answer.status for answer in answers_in(await client.read_until_close())] == [413]
            for _ in range(20):
                await client.send(chunked(b"x" * 10_000))
                await asyncio.sleep(0.005)
            assert len(s.process.service.connections) == 1

    run(body())


def test_BOD_10_a_chunked_upload_that_ends_badly():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            await client.send(post(CHUNKED, chunked(b'{"model":"m"')))
            await until(lambda: s.process.service.active == 1, "the call")
            await client.send(b"zz\r\n")
            shown = answers_in(await client.read_until_close())
            assert [answer.status for answer in shown] == [400]
            assert s.upstream.requests == []

    run(body())


def test_BOD_10_a_client_that_leaves_in_the_middle():
    async def body():
        async with scene(GOOD) as s:
            async with RawClient(s.url) as client:
                await client.send(post(CHUNKED, chunked(b'{"model":"m"}')))
                await until(lambda: s.process.service.active == 1, "the call")
            await s.at_rest()
            assert s.upstream.requests == []

    run(body())


def test_BOD_17_what_was_not_wholly_received_is_never_sent():
    async def body():
        data = b'{"model":"m","messages":[],"x":"%b"}' % (b"x" * 5_000_000)

        async def resets(conn, request):
            conn.rst()

        async with scene(resets, GOOD, workers=2, plugins="[cases.witness:Witness]") as s:
            for _ in range(4):
                got = await s.ask(data)
                assert got.status in (200, 502)
            for upstream in s.upstreams:
                assert all(request.body == data for request in upstream.requests)

    run(body())
