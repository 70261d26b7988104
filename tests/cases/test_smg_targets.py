"""HTTP edge: targets and methods that ask for something else than a path of the API."""

from __future__ import annotations

import pytest
from fakes import GOOD, run
from tailrace.proxy import parsing

from cases.edge import BODY, CHUNKED, CHUNKS, GET, LENGTH, post, refused, until_closed
from cases.scene import PATH, scene

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


@pytest.mark.parametrize(("line", "status"), [("CONNECT a:80", 405), ("OPTIONS *", 404), ("TRACE /v1/models", 405)])
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
            assert b"longer than 8192 bytes (`limits.target`)" in shown.body

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


OFFER = b"connection: upgrade\r\nupgrade: h2c\r\n"


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize(
    "lines", [b"", OFFER, LENGTH + OFFER, CHUNKED, b"upgrade: h2c\r\n", b"connection: upgrade\r\n"]
)
@pytest.mark.parametrize("target", [b"/", b"*", b"/v1/models", b"a:80", b"http://a/"])
def test_SMG_07_a_tunnel_is_refused(target, lines, version):
    """Behind the head of CONNECT the parser expects another protocol, whatever else the head says."""

    async def body():
        async with scene(GOOD) as s:
            data = b"CONNECT %b HTTP/%b\r\nhost: a\r\n%b\r\n%b" % (target, version, lines, BODY)
            shown = await refused(s, data, 405)
            assert shown.error["code"] == "method_not_allowed"
            shown = await until_closed(s, post() + data)
            assert [answer.status for answer in shown] == [200, 405]

    run(body())


def test_SMG_07_a_tunnel_is_refused_byte_by_byte():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            for byte in b"CONNECT / HTTP/1.1\r\nhost: a\r\n\r\n":
                await client.send(bytes([byte]))
            assert (await client.read_answer()).status == 405

    run(body())


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PUT", "DELETE", "TRACE", "SOURCE", "MERGE"])
def test_SMG_07_an_offer_changes_nothing(method, version):
    """With any method: what answers a request with an offer is what answers it without."""

    async def body():
        async with scene(GOOD) as s:
            line = b"%b /v1/models HTTP/%b\r\nhost: a\r\n" % (method.encode(), version)
            closing = b"connection: close\r\n\r\n"
            plain, offered, folded = [
                await until_closed(s, line + offer + closing)
                for offer in (b"", OFFER, b"Connection: x, UPGRADE,close\r\nUPGRADE: websocket\r\nupgrade: a\r\n")
            ]
            assert [answer.status for answer in plain] == [answer.status for answer in offered]
            assert [answer.status for answer in plain] == [answer.status for answer in folded]
            assert len(plain) == 1

    run(body())


def test_SMG_07_offers_in_a_row():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            one = post(OFFER + LENGTH)
            await client.send(one * 12)
            assert [(await client.read_answer()).status for _ in range(12)] == [200] * 12
            for at in range(0, len(one), 9):
                await client.send(one[at : at + 9])
            assert (await client.read_answer()).status == 200
            assert [request.body for request in s.upstream.requests] == [BODY] * 13

    run(body())


@pytest.mark.interpreted
def test_SMG_07_a_stop_that_nothing_in_the_head_explains(monkeypatch):
    """Should the parser ever stop behind a head without an offer, serving that head again would stop it again."""
    real = parsing.read_head
    monkeypatch.setattr(parsing, "read_head", lambda method, *rest: real(method.replace("CONNECT", "GET"), *rest))

    async def body():
        async with scene(GOOD) as s:
            await refused(s, b"CONNECT / HTTP/1.1\r\nhost: a\r\n\r\n")
            shown = await until_closed(s, post() + b"CONNECT / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert [answer.status for answer in shown] == [200, 400]

    run(body())
