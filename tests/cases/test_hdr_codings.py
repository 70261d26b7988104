"""Headers: bodies that are compressed, in each direction."""

from __future__ import annotations

import gzip
import zlib

import orjson
import pytest
import zstandard
from fakes import GOOD, answer, chat_answer, run

from cases.scene import CHAT, scene


@pytest.mark.parametrize("accepts", [None, "gzip", "identity"])
def test_HDR_03_a_coded_answer_keeps_its_header_and_its_bytes(accepts):
    async def body():
        plain = orjson.dumps(chat_answer("hi"))
        coded = gzip.compress(plain)
        async with scene(answer(200, coded, headers=b"content-encoding: gzip\r\n")) as s:
            got = await s.ask(CHAT, headers={"accept-encoding": accepts} if accepts else {})
            assert (got.status, got.header("content-encoding"), got.body) == (200, "gzip", coded)
            assert got.header("content-length") == str(len(coded))
            assert s.upstream.requests[0].header("accept-encoding") == "identity"

    run(body())


def test_HDR_05_compressed_request_bodies():
    async def body():
        plain = orjson.dumps(CHAT)
        codings = {
            "gzip": gzip.compress(plain),
            "X-GZIP": gzip.compress(plain),
            "deflate": zlib.compress(plain),
            "zstd": zstandard.compress(plain),
            "identity": plain,
        }
        async with scene(GOOD) as s:
            for coding, data in codings.items():
                got = await s.ask(data, headers={"content-encoding": coding})
                assert got.status == 200
                request = s.upstream.requests[-1]
                assert (request.body, request.header("content-encoding")) == (plain, None)
                assert request.header("content-length") == str(len(plain))
            for coding in ("br", "gzip, gzip", "compress", "x"):
                got = await s.ask(gzip.compress(gzip.compress(plain)), headers={"content-encoding": coding})
                assert (got.status, got.json()["error"]["code"]) == (415, "unsupported_encoding")
            assert len(s.upstream.requests) == len(codings)

    run(body())
