"""Paths that are forwarded as they are: the answer comes back as the worker gave it."""

from __future__ import annotations

import pytest
from fakes import Answer, RawClient, Script, Upstream, gateway, run

YAML = """
listen: [127.0.0.1:0]
pools: {{p: {{workers: ["{url}"]}}}}
models: {{m: {{pool: p}}}}
routes: [{{path: /x, pool: p, methods: [GET, HEAD, POST]}}]
"""
OK = b"HTTP/1.1 200 OK\r\n"


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
    for answer in got:
        assert (answer.status, answer.header("x-a"), answer.header("content-length")) == (200, "b", length)
    assert used == connections


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
