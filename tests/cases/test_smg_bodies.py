"""HTTP edge: requests whose bodies could end in two places."""

from __future__ import annotations

import pytest
from fakes import GOOD, run

from cases.edge import BODY, CHUNKED, CHUNKS, GET, LENGTH, post, refused
from cases.scene import scene

SMUGGLED = b"POST /v1/chat/completions HTTP/1.1\r\nhost: evil\r\n" + LENGTH + b"\r\n" + BODY
CODINGS = {
    "length first": LENGTH + CHUNKED,
    "coding first": CHUNKED + LENGTH,
    "twice": CHUNKED + CHUNKED,
    "identity line before": b"transfer-encoding: identity\r\n" + CHUNKED,
    "xchunked": b"transfer-encoding: xchunked\r\n",
    "chunked, identity": b"transfer-encoding: chunked, identity\r\n",
    "gzip, chunked": b"transfer-encoding: gzip, chunked\r\n",
    "empty element": b"transfer-encoding: ,chunked\r\n",
    "identity": b"transfer-encoding: identity\r\n",
    "empty": b"transfer-encoding: \r\n",
    "quoted": b'transfer-encoding: "chunked"\r\n',
    "parameter": b"transfer-encoding: chunked;q=1\r\n",
    "vertical tab": b"transfer-encoding: \x0bchunked\r\n",
    "space in the name": b"transfer-encoding : chunked\r\n",
}


@pytest.mark.parametrize("lines", CODINGS.values(), ids=CODINGS)
def test_SMG_01_length_and_chunked(lines):
    async def body():
        async with scene(GOOD) as s:
            await refused(s, post(lines, CHUNKS) + SMUGGLED)

    run(body())


def test_SMG_01_chunked_in_http_1_0():
    async def body():
        async with scene(GOOD) as s:
            await refused(s, post(CHUNKED, CHUNKS, version=b"HTTP/1.0") + SMUGGLED)

    run(body())


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"\tCHUNKED"])
def test_SMG_01_plain_chunked_is_served(coding):
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            await client.send(post(b"transfer-encoding: " + coding + b"\r\n", CHUNKS) + GET)
            assert [(await client.read_answer()).status for _ in "12"] == [200, 200]
            request = s.upstream.requests[0]
            assert request.body == BODY
            assert request.header("transfer-encoding") is None

    run(body())


CHUNK_FAULTS = {
    "no number": b"1z\r\na\r\n0\r\n\r\n",
    "bare line feed": CHUNKS.replace(b"\r\n", b"\n", 1),
    "longer than it says": CHUNKS.replace(BODY, BODY + b"XX"),
    "negative": b"-1b\r\n" + BODY + b"\r\n0\r\n\r\n",
    "prefixed": b"0x" + CHUNKS,
    "more than 64 bits": b"1" + b"0" * 16 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "line feed in an extension": CHUNKS.replace(b"\r\n", b";a\nb\r\n", 1),
}


@pytest.mark.parametrize("chunks", CHUNK_FAULTS.values(), ids=CHUNK_FAULTS)
def test_SMG_01_chunks_out_of_form(chunks):
    async def body():
        async with scene(GOOD) as s:
            await refused(s, post(CHUNKED, chunks) + SMUGGLED)

    run(body())


def test_SMG_01_trailers_are_no_headers():
    async def body():
        async with scene(GOOD, more="forward_headers: [authorization]") as s:
            client = await s.client()
            trailers = b"x-forwarded-for: 1.2.3.4\r\nauthorization: Bearer late\r\nx-late: 1\r\n"
            await client.send(post(CHUNKED, CHUNKS[:-2] + trailers + b"\r\n"))
            assert (await client.read_answer()).status == 200
            request = s.upstream.requests[0]
            assert request.header("x-late") is request.header("authorization") is None
            assert request.header("x-forwarded-for") == "127.0.0.1"
            assert (b"x-late", b"1") not in s.witness.calls[0].head.headers

    run(body())


@pytest.mark.parametrize(
    "length",
    ["+27", "0x1b", "27, 27", "027", "00", "2 7", "-27", "", "27 x", "1" * 30, "99999999999999999999", "27\x0b"],
)
def test_SMG_02_length_variants(length):
    async def body():
        async with scene(GOOD) as s:
            await refused(s, post(b"content-length: %b\r\n" % length.encode()) + SMUGGLED)

    run(body())


@pytest.mark.parametrize("second", [LENGTH, b"content-length: 3\r\n"], ids=["equal", "different"])
def test_SMG_02_two_lengths(second):
    async def body():
        async with scene(GOOD) as s:
            await refused(s, post(LENGTH + second) + SMUGGLED)

    run(body())
