"""HTTP edge: lines and headers out of form, and protocols that are not HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from fakes import GOOD, run

from cases.edge import BODY, CHUNKED, CHUNKS, LENGTH, answers_in, post, refused, until_closed
from cases.scene import PATH, scene

SYNTAX = {
    "bare line feeds": post().replace(b"\r\n", b"\n"),
    "one bare line feed": post(b"x-a: b\n" + LENGTH),
    "bare carriage return that hides a header": post(b"x-a: b\rtransfer-encoding: chunked\r\n" + LENGTH),
    "folded": post(b"x-a: b\r\n c\r\n" + LENGTH),
    "folded at the start": post().replace(b"host", b" x: y\r\nhost"),
    "space before the colon": post(b"x-a : b\r\n" + LENGTH),
    "NUL": post(b"x-a: b\0c\r\n" + LENGTH),
    "control character": post(b"x-a: b\x01c\r\n" + LENGTH),
    "high byte in a name": post(b"x-\xe9: b\r\n" + LENGTH),
    "empty name": post(b": b\r\n" + LENGTH),
    "no colon": post(b"abc\r\n" + LENGTH),
    "no Host": post().replace(b"host: a\r\n", b""),
    "two Hosts": post(b"host: b\r\n" + LENGTH),
    "two content types": post(b"content-type: text/plain\r\n" + LENGTH),
    "lower-case method": b"post" + post()[4:],
    "unknown method": b"FOO" + post()[4:],
    "tab for a space": post().replace(b"POST ", b"POST\t"),
    "lower-case protocol": post(version=b"http/1.1"),
    "another protocol": post(version=b"ICE/1.0"),
    "a later version": post(version=b"HTTP/1.2"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no version, with a bare line feed": b"GET /v1/models\n\n",
}


@pytest.mark.parametrize("data", SYNTAX.values(), ids=SYNTAX)
def test_SMG_03_line_and_header_syntax(data):
    async def body():
        async with scene(GOOD) as s:
            await refused(s, data)

    run(body())


@pytest.mark.parametrize("protocol", [b"RTSP/1.0", b"RTSP/1.1", b"ICE/1.0", b" HTTP/1.1"])
def test_SMG_03_only_http(protocol):
    async def body():
        async with scene(GOOD) as s:
            method = b"SOURCE" if protocol == b"ICE/1.0" else b"POST"
            line = b"%b %b %b\r\n" % (method, PATH.encode(), protocol)
            data = line + post().partition(b"\r\n")[2]
            await refused(s, data)
            for before, count in ((post(), 1), (post() + post(), 2), (post(CHUNKED, CHUNKS), 1)):
                seen = len(s.upstream.requests)
                shown = await until_closed(s, before + data)
                assert [answer.status for answer in shown] in ([200], [200] * count, [200] * count + [400])
                assert len(s.upstream.requests) <= seen + count
            client = await s.client()
            for at in range(len(line) + 3):
                await client.send(data[at : at + 1])
                await asyncio.sleep(0)
            await client.send(data[at + 1 :])
            assert (await client.read_answer()).status == 400
            again = await s.client()
            for status in (200, 200, 200, 400):
                await again.send(post() if status == 200 else data)
                assert (await again.read_answer()).status == status

    run(body())


def test_SMG_03_http_in_small_pieces_is_http():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            for size in (1, 7, 60, 150):
                data = post() * 3
                for at in range(0, len(data), size):
                    await client.send(data[at : at + size])
                    await asyncio.sleep(0)
                assert [(await client.read_answer()).status for _ in "123"] == [200] * 3
            (connection,) = s.process.service.connections
            assert connection._seen == []

    run(body())


VERSIONS = {
    "none": b"",
    "0.9": b" HTTP/0.9",
    "2.0": b" HTTP/2.0",
}


@pytest.mark.parametrize("end", [b"\r\n", b"\n"], ids=["CRLF", "LF"])
@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_SMG_03_only_http_1_0_and_1_1(version, end):
    async def body():
        async with scene(GOOD) as s:
            line = b"POST " + PATH.encode() + version + end
            data = line + post().partition(b"\r\n")[2]
            assert all(answer.status in (400, 505) for answer in await until_closed(s, data))
            client = await s.client()
            await client.send(post() + data)
            assert (await client.read_answer()).status == 200
            rest = answers_in(await client.read_until_close())
            assert all(answer.status in (400, 505) for answer in rest)
            assert len(s.upstream.requests) == 1

    run(body())


def test_SMG_03_a_request_that_stops_short_is_not_run():
    async def body():
        async with scene(GOOD, more="timeouts: {client_head: 0.2s}") as s:
            await refused(s, post()[: -len(BODY) - 2], 408)

    run(body())


def test_SMG_06_the_parser_is_always_the_same():
    # There is one parser and no fallback: without it the program does not start.
    code = "import sys; sys.modules['httptools'] = None; import tailrace.proxy.server"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "httptools" in done.stderr
