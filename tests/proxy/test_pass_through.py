"""Paths that are forwarded as they are: the answer comes back as the worker gave it."""

from __future__ import annotations

import asyncio

import pytest
from fakes import Answer, Connection, RawClient, Request, Script, Upstream, answer, chunked, gateway, run, sse_head

YAML = """
listen: [127.0.0.1:0]
pools: {{p: {{workers: ["{url}"]}}}}
models: {{m: {{pool: p}}}}
routes: [{{path: /x, pool: p, methods: [GET, HEAD, POST]}}]
"""
OK = b"HTTP/1.1 200 OK\r\n"
FRAMING = ("content-length", "transfer-encoding", "connection")


def answered(method: str, *scripts: Script | bytes, times: int = 1) -> tuple[list[Answer], int]:
    """The answers to so many requests on one connection, and how many connections the worker saw requests on."""

    async def main() -> tuple[list[Answer], int]:
        async with Upstream(*scripts) as upstream, gateway(YAML.format(url=upstream.url)) as process:
            async with RawClient(process.doors[0].shown) as client:
                got = []
                for _ in range(times):
                    await client.request(method, "/x")
                    got.append(await client.read_answer(method=method))
                return got, len([connection for connection in upstream.connections if connection.requests])

    return run(main())


@pytest.mark.parametrize(
    ("framing", "length", "connections"),
    [
        (b"content-length: 5\r\n", "5", 1),
        (b"content-length: 0\r\n", "0", 1),
        (b"transfer-encoding: chunked\r\n", None, 1),
        (b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n", None, 1),
        (b"", None, 2),
    ],
)
def test_an_answer_to_HEAD_has_no_body_whatever_it_says(framing: bytes, length: str | None, connections: int) -> None:
    got, used = answered("HEAD", OK + b"x-a: b\r\n" + framing + b"\r\n", times=2)
    for each in got:
        assert (each.status, each.header("x-a"), each.header("content-length")) == (200, "b", length)
    assert used == connections


LINES = (
    b"location: /y\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nserver: engine\r\nwww-authenticate: Bearer\r\n"
    b'access-control-allow-origin: *\r\nvary: Origin\r\netag: "a"\r\n'
)
HOP = b"keep-alive: timeout=5\r\nproxy-connection: a\r\nx-tailrace-load: running=1\r\nupgrade: h2c\r\n"


@pytest.mark.parametrize("status", [200, 201, 206, 302, 304, 400, 401, 403, 404, 429, 500, 503])
@pytest.mark.parametrize("framing", ["content-length", "chunked", "until close"])
def test_an_answer_passes_as_it_came(status: int, framing: str) -> None:
    text = b"" if status == 304 else b"no such thing"
    how, body = {
        "content-length": (b"content-length: %d\r\n" % len(text), text),
        "chunked": (b"transfer-encoding: chunked\r\n", chunked(text) + chunked(b"") if text else chunked(b"")),
        "until close": (b"connection: close\r\n", text),
    }[framing]
    head = b"HTTP/1.1 %d Reason\r\ncontent-type: text/plain\r\n" % status + LINES + HOP + b"x-request-id: its\r\n" + how

    async def script(conn: Connection, request: Request) -> None:
        await conn.send(head + b"\r\n" + (b"" if status == 304 else body))
        if framing == "until close":
            conn.fin()

    (got,), _ = answered("GET", script)
    assert (got.status, got.body, got.complete) == (status, text, True)
    shown = [(name, value) for name, value in got.head.headers if name not in (*FRAMING, "x-request-id")]
    lines = [line.split(": ") for line in LINES.decode().splitlines()]
    assert shown == [("content-type", "text/plain"), *map(tuple, lines), ("x-upstream-request-id", "its")]
    framed = [name for name, _ in got.head.headers if name in FRAMING]
    length = "content-length" if framing == "content-length" else "transfer-encoding"
    assert framed == ([] if status == 304 else [length])


def test_an_answer_begins_with_its_head_and_goes_on_as_it_comes() -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def script(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + chunked(b"a"))
            await go.wait()
            await conn.send(chunked(b"b") + chunked(b""))

        async with Upstream(script) as upstream, gateway(YAML.format(url=upstream.url)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.request("GET", "/x")
                head = await client.read_head()
                assert (head.status, head.header("x-accel-buffering")) == (200, None)
                assert await client.read_chunk() == (b"a", chunked(b"a"))
                go.set()
                assert await client.read_chunk() == (b"b", chunked(b"b"))
                assert await client.read_chunk() == (b"", chunked(b""))

    run(main())


def test_an_answer_of_known_length_is_not_compressed() -> None:
    async def main() -> None:
        text = b"a" * 10_000
        async with Upstream(answer(200, text, "text/plain")) as upstream:
            async with gateway(YAML.format(url=upstream.url)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    got = await client.get("/x", {"accept-encoding": "gzip"})
                    assert (got.body, got.header("content-encoding")) == (text, None)

    run(main())


def test_what_a_sidecar_refuses_by_itself_goes_to_another_worker() -> None:
    async def main() -> None:
        busy = answer(503, b"{}", headers=b"x-tailrace-load: running=1;waiting=0;kv=0.00;unsent\r\n")
        async with Upstream(busy) as refuses, Upstream(answer(200, b"ok")) as answers:
            yaml = YAML.format(url=f'{refuses.url}", "{answers.url}')
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                assert {(await client.get("/x")).body for _ in range(12)} == {b"ok"}
            assert refuses.requests

    run(main())


def test_an_error_to_HEAD_has_no_body_either() -> None:
    (got,), _ = answered("HEAD", b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 31\r\n\r\n")
    assert got.status == 405


def test_after_HEAD_another_answer_has_its_body() -> None:
    async def main() -> None:
        scripts = (OK + b"content-length: 2\r\n\r\n", OK + b"content-length: 2\r\n\r\nok")
        async with Upstream(*scripts) as upstream, gateway(YAML.format(url=upstream.url)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.request("HEAD", "/x")
                await client.read_answer(method="HEAD")
                assert (await client.get("/x")).body == b"ok"
                assert len([connection for connection in upstream.connections if connection.requests]) == 1

    run(main())
