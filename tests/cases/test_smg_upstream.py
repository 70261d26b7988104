"""HTTP edge: what a worker sends must not become two answers."""

from __future__ import annotations

import pytest
from fakes import GOOD, RawClient, answer, chunked, run, sending, sse_answer, sse_head, stream_of

from cases.scene import CHAT, PATH, STREAM, scene

OK = b"HTTP/1.1 200 OK\r\n"

JSON = b'{"choices":[]}'
TYPE = b"content-type: application/json\r\n"
SIZE = b"content-length: %d\r\n" % len(JSON)


def spelled(lines: bytes = b"", first: bytes = OK, framing: bytes = SIZE, body: bytes = JSON) -> bytes:
    """An answer that is good but for what is given."""
    return first + TYPE + lines + framing + b"\r\n" + body


SPLITS = {
    "CR in the reason": spelled(first=b"HTTP/1.1 200 OK\rSet-Cookie: a=b\r\n"),
    "CR in a value": spelled(b"X-A: a\rSet-Cookie: b\r\n"),
    "LF in a value": spelled(b"X-A: a\nSet-Cookie: b\r\n"),
    "NUL in a value": spelled(b"X-A: a\0b\r\n"),
    "vertical tab in a value": spelled(b"X-A: a\x0bb\r\n"),
    "folded": spelled(b"X-A: a\r\n b\r\n"),
    "space in a name": spelled(b"X-A : a\r\n"),
    "no colon": spelled(b"xa\r\n"),
    "status 099": spelled(first=b"HTTP/1.1 099 X\r\n"),
    "status 600": spelled(first=b"HTTP/1.1 600 X\r\n"),
    "status 101": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n" + spelled(),
    "HTTP/2.0": spelled(first=b"HTTP/2.0 200 OK\r\n"),
    "two lengths": spelled(b"content-length: 3\r\n"),
    "signed length": spelled(framing=b"content-length: +%d\r\n" % len(JSON)),
    "length and chunked": spelled(b"transfer-encoding: chunked\r\n", body=chunked(JSON) + chunked(b"")),
    "chunked and length": spelled(SIZE, framing=b"transfer-encoding: chunked\r\n", body=chunked(JSON) + chunked(b"")),
    "gzip, chunked": spelled(framing=b"transfer-encoding: gzip, chunked\r\n", body=chunked(JSON) + chunked(b"")),
    "bad chunk size": spelled(framing=b"transfer-encoding: chunked\r\n", body=b"0x" + chunked(JSON) + chunked(b"")),
    "chunk too long": spelled(framing=b"transfer-encoding: chunked\r\n", body=b"2\r\n{}x\r\n"),
    "head without end": OK + b"x-a: b\r\n" * 20_000,
}


def test_SMG_12_the_good_answer_is_good():
    async def body():
        async with scene(spelled()) as s:
            assert (await s.ask(CHAT)).status == 200

    run(body())


@pytest.mark.parametrize("data", SPLITS.values(), ids=SPLITS)
def test_SMG_12_response_splitting_from_upstream(data):
    async def body():
        async def broken(conn, request):
            await conn.send(data)
            await conn.wait_closed()

        async with scene(broken) as s:
            got = await s.ask(CHAT)
            assert (got.status, got.json()["error"]["code"]) == (502, "bad_upstream_answer")
            assert got.header("set-cookie") is got.header("x-a") is None

    run(body())


def test_SMG_12_a_cut_chunked_answer_is_no_answer():
    async def body():
        async def cut(conn, request):
            await conn.send(spelled(framing=b"transfer-encoding: chunked\r\n", body=chunked(JSON)))
            conn.fin()

        async with scene(cut) as s:
            assert (await s.ask(CHAT)).json()["error"]["code"] == "upstream_lost"

    run(body())


@pytest.mark.parametrize("whole", [True, False])
def test_SMG_12_extensions_of_chunks_stay_behind(whole):
    async def body():
        events = stream_of(["a", "b" * 30_000, "c"])
        sent = [b"%x ; a=b\r\n%b\r\n" % (len(piece), piece) for piece in events] + [b"0;last\r\n\r\n"]
        pieces = [sse_head(), *([b"".join(sent)] if whole else [piece for each in sent for piece in (0.02, each)])]
        bad = sending(sse_head(), chunked(events[0]) + chunked(events[1]), 0.05, b"3;a=\x01\r\nabc\r\n")
        async with scene(sending(*pieces), bad) as s:
            got = await s.ask(STREAM)
            assert got.complete
            assert got.body == b"".join(events)
            assert b";" not in got.raw_body
            assert not (await s.ask(STREAM)).complete

    run(body())


def test_SMG_12_interim_answers_are_not_passed_on():
    async def body():
        interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
        many = b"HTTP/1.1 102 Processing\r\n\r\n" * 5000
        stream = sse_answer(stream_of(["a"]))
        async with scene(interim + GOOD, many + stream) as s:
            got = await s.ask(CHAT)
            assert (got.status, got.header("link")) == (200, None)
            assert (await s.ask(STREAM)).body.endswith(b"data: [DONE]\n\n")

    run(body())


def test_SMG_12_each_answer_comes_once_on_a_kept_connection():
    # Bytes behind an answer must never be taken for the next one.
    async def body():
        forged = answer(200, b'{"choices":[],"forged":1}')
        async with scene(GOOD + forged, GOOD) as s:
            async with RawClient(s.url) as client:
                assert b"forged" not in (await client.post(PATH, CHAT)).body
                assert b"forged" not in (await client.post(PATH, CHAT)).body
            assert [len(connection.requests) for connection in s.upstream.connections if connection.requests] == [1, 1]

    run(body())
