"""HTTP edge: smuggling, targets, slow clients."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from fakes import chat_answer, json_answer, run

from cases.edge import BODY, CHUNKED, CHUNKS, GET, LENGTH, answers_in, post, refused, until_closed
from cases.scene import PATH, scene

GOOD = json_answer(chat_answer("hi"))
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


TARGETS = {
    "absolute": "http://169.254.169.254/",
    "absolute, own name": "http://a/v1/models",
    "two slashes": "//evil/v1/models",
    "URL in the path": "/http://evil/",
    "encoded separators": "/v1/..%2f..%2fmetrics",
    "encoded dots": "/v1/%2e%2e/admin",
    "plain dots": "/v1/../metrics",
    "dot": "/v1/./models",
    "dots at the end": "/v1/models/..",
    "backslash": "/v1\\..\\x",
    "encoded backslash": "/v1/%5c..%5cx",
    "encoded twice": "/v1/%252e%252e/admin",
    "fragment": "/v1/models#frag",
    "fragment behind a query": "/v1/models?x=1#frag",
    "encoded line break": "/v1/models%0d%0ax-a:%20b",
    "encoded NUL": "/v1/models%00",
    "encoded question mark": "/v1/models%3fx",
    "high bytes": "/v1/mod\xe9ls",
    "no slash": "v1/models",
    "asterisk": "*",
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_SMG_07_request_target(method, target):
    async def body():
        async with scene(GOOD) as s:
            data = b"%b %b HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n" % (method.encode(), target.encode("latin-1"))
            shown = await until_closed(s, data + b"connection: close\r\n\r\n")
            assert [answer.status for answer in shown] == [404 if target == "*" else 400]
            assert s.upstream.requests == []

    run(body())


@pytest.mark.parametrize(("line", "status"), [("CONNECT a:80", 400), ("OPTIONS *", 404), ("TRACE /v1/models", 405)])
def test_SMG_07_methods_about_the_connection(line, status):
    async def body():
        async with scene(GOOD) as s:
            data = b"%b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % line.encode()
            assert [answer.status for answer in await until_closed(s, data)] == [status]

    run(body())


def test_SMG_07_long_target():
    async def body():
        async with scene(GOOD) as s:
            shown = await refused(s, b"GET /v1/models/" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", 414)
            assert b"aaaa" not in shown.body

    run(body())


def test_SMG_07_guard_and_forwarder_see_one_path():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            await client.send(post(path="/v1/%63hat%2Fcompletions?x=%0d%0a"))
            assert (await client.read_answer()).status == 200
            assert s.upstream.requests[0].target == "/v1/chat/completions?x=%0d%0a"
            assert s.witness.calls[0].head.path == PATH

    run(body())


def test_SMG_07_an_offered_protocol_is_not_taken_up():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n"
            await client.send(post(offer + LENGTH) + post(offer + CHUNKED, CHUNKS) + GET)
            answers = [await client.read_answer() for _ in "123"]
            assert [answer.status for answer in answers] == [200, 200, 200]
            assert answers[2].json()["object"] == "list"
            assert [request.body for request in s.upstream.requests] == [BODY, BODY]
            assert all(request.header("upgrade") is None for request in s.upstream.requests)

    run(body())
