"""Malformed requests: clients get well-formed answers or none, and the worker sees whole requests of the gateway."""

from __future__ import annotations

import asyncio
import gzip
import random

import orjson
import pytest
import uvloop
import zstandard
from fakes import chat_answer, chunked, json_answer, sse_answer, stream_of

from fuzz.arena import CHAINS, SECONDS, Arena, arena, waves
from fuzz.mutation import mutated, pieces

pytestmark = pytest.mark.timeout(120 + 2 * SECONDS)
BODY = {"model": "m", "messages": [{"role": "user", "content": "größe \\u00e4 hi"}], "max_tokens": 5}
STREAM = sse_answer(stream_of(["a", "b", "c"]))
WHOLE = json_answer(chat_answer("hi"))


def request(path: str, body: bytes, more: bytes = b"", method: str = "POST") -> bytes:
    length = b"content-length: %d\r\n" % len(body) if body else b""
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
    return head + length + more + b"\r\n" + body


def good_requests() -> list[bytes]:
    plain = orjson.dumps(BODY)
    streamed = orjson.dumps({**BODY, "stream": True, "stream_options": {"include_usage": True}})
    part = b'--b\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    form = part % (b"model", b"m") + part % (b'file"; filename="a', b"xyz") + b"--b--\r\n"
    in_chunks = b"".join(chunked(plain[at : at + 20]) for at in range(0, len(plain), 20)) + chunked(b"")
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    chat = "/v1/chat/completions"
    return [
        request(chat, plain),
        request(chat, streamed),
        request(chat, streamed, b"accept-encoding: gzip, zstd\r\n"),
        request(chat, plain, b"expect: 100-continue\r\n"),
        request(chat, plain, b"connection: close\r\norigin: http://a.example\r\n"),
        request(chat, gzip.compress(plain), b"content-encoding: gzip\r\n"),
        request(chat, zstandard.compress(streamed), b"content-encoding: zstd\r\n"),
        head + in_chunks,
        request("/v1/completions", orjson.dumps({"model": "m", "prompt": [1, 2, 3], "stream": True})),
        request("/v1/messages", streamed, b"x-api-key: k\r\nanthropic-version: 2023-06-01\r\n"),
        request("/v1/responses", orjson.dumps({"model": "m", "input": "a", "previous_response_id": "resp_1"})),
        request("/v1/audio/transcriptions", form).replace(b"application/json", b"multipart/form-data; boundary=b"),
        request("/v1/models", b"", method="GET"),
        request("/v1/models/m", b"", method="GET"),
        request("/healthz", b"", method="GET"),
        request(chat, b"", method="OPTIONS"),
        request("/v1/files", plain),
        request(chat, plain) * 3,
        request(chat, plain).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ]


GOOD = good_requests()


def answering(body: bytes) -> tuple[list[bytes], str]:
    return ([STREAM] if b'"stream":true' in body else [WHOLE]), "keep"


@pytest.mark.parametrize("chain", CHAINS)
def test_malformed_requests(chain: str) -> None:
    async def case(here: Arena, random_: random.Random) -> None:
        data = mutated(random_, random_.choice(GOOD), GOOD)
        for got in await here.ask(pieces(random_, data), reset=random_.random() < 0.3):
            assert got.status != 500
            assert got.status < 500 or got.status in (501, 502, 503, 505)

    async def body() -> None:
        async with arena(answering, chain) as here:
            for good in GOOD:
                assert await here.ask([good], patience=10.0), "a good request gets an answer"
            await here.settle()
            assert await waves(here, 1_000_000, lambda random_: case(here, random_), 1 / len(CHAINS)) > 100
            [answer] = await here.ask([GOOD[0]], patience=10.0)
            assert answer.status == 200

    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(body())
