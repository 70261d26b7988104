"""Compressed answers: on request, decodable event by event, and never where they should not be."""

from __future__ import annotations

import zlib

import pytest
import zstandard
from fakes import (
    PATH,
    RawClient,
    Upstream,
    chat_chunk,
    chunked,
    event,
    gateway,
    json_answer,
    run,
    sse_answer,
    sse_head,
    yaml_for,
)
from tailrace.proxy.compress import chosen, encoder
from tailrace.proxy.head import Head
from tailrace.proxy.settings import Compression
from tailrace.proxy.testing.worker import Connection, Request

BIG = {"choices": [{"index": 0, "message": {"content": "word " * 500}}]}
STREAM = b'{"model": "m", "stream": true}'
STREAMS = "compression: {streams: true}\n"


def unzip(coding: str, data: bytes) -> bytes:
    if coding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return zlib.decompress(data, 31)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_whole_answer_is_compressed_on_request(coding: str) -> None:
    async def main() -> None:
        async with (
            Upstream(json_answer(BIG, headers=b"vary: Origin\r\n")) as upstream,
            gateway(yaml_for(upstream)) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            plain = await client.post(PATH, {"model": "m"})
            packed = await client.post(PATH, {"model": "m"}, {"accept-encoding": coding})
            assert packed.header("content-encoding") == coding
            assert packed.header("vary") == "Origin, accept-encoding"
            assert unzip(coding, packed.body) == plain.body
            assert len(packed.body) < len(plain.body) / 5
            assert plain.header("content-encoding") is None

    run(main())


def test_small_answers_and_answers_already_coded_stay_as_they_are() -> None:
    async def main() -> None:
        small = json_answer({"choices": []})
        coded = json_answer(BIG, headers=b"content-encoding: br\r\n")
        async with Upstream(small, coded) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                for expected in (None, "br"):
                    got = await client.post(PATH, {"model": "m"}, {"accept-encoding": "gzip, zstd"})
                    assert got.header("content-encoding") == expected

    run(main())


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_each_event_of_a_stream_can_be_decoded_when_it_comes(coding: str) -> None:
    async def script(conn: Connection, request: Request) -> None:
        await conn.send(sse_head())
        for text in ("one", "two", "three"):
            await conn.send(chunked(chat_chunk(text)))
            await released[text].wait()
        await conn.send(chunked(chat_chunk(finish="stop")) + chunked(event("[DONE]")) + chunked(b""))

    import asyncio

    released: dict[str, asyncio.Event] = {}

    async def main() -> None:
        released.update({text: asyncio.Event() for text in ("one", "two", "three")})
        decoder = zstandard.ZstdDecompressor().decompressobj() if coding == "zstd" else zlib.decompressobj(31)
        async with Upstream(script) as upstream, gateway(yaml_for(upstream, more=STREAMS)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.request("POST", PATH, STREAM, {"accept-encoding": coding})
                head = await client.read_head()
                assert head.header("content-encoding") == coding
                seen = b""
                for text in ("one", "two", "three"):
                    while text.encode() not in seen:
                        chunk = await client.read_chunk()
                        assert chunk is not None
                        seen += decoder.decompress(chunk[0])
                    released[text].set()
                while (chunk := await client.read_chunk()) is not None and chunk[0]:
                    seen += decoder.decompress(chunk[0])
                assert seen.endswith(b"data: [DONE]\n\n")

    run(main())


def test_streams_are_left_alone_by_default() -> None:
    async def main() -> None:
        answer = sse_answer([chat_chunk("a", finish="stop"), event("[DONE]")])
        async with Upstream(answer) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                got = await client.post(PATH, {"model": "m", "stream": True}, {"accept-encoding": "gzip"})
                assert got.header("content-encoding") is None
                assert got.body.endswith(b"[DONE]\n\n")

    run(main())


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        (b"gzip", "gzip"),
        (b"gzip, deflate, br, zstd", "zstd"),
        (b"zstd;q=0, gzip;q=0.5", "gzip"),
        (b"*", "zstd"),
        (b"*;q=0", None),
        (b"identity", None),
        (b"gzip;q=nonsense", None),
        (b"", None),
    ],
)
def test_the_coding_follows_what_the_client_accepts(accept: bytes, coding: str | None) -> None:
    head = Head(200, [(b"content-type", b"application/json")])
    assert chosen(Compression(), accept, head) == coding


def test_audio_is_not_compressed() -> None:
    assert chosen(Compression(), b"gzip", Head(200, [(b"content-type", b"audio/wav")])) is None


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_an_encoder_ends_its_stream(coding: str) -> None:
    it = encoder(coding)
    data = it.piece(b"a" * 10) + it.piece(b"b") + it.end()
    assert unzip(coding, data) == b"a" * 10 + b"b"
