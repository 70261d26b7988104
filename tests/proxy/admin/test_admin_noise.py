"""What the log says of clients that send the admin port what is no request."""

from __future__ import annotations

import logging
import socket

import pytest
from aiohttp.http_exceptions import BadHttpMessage
from fakes import RawClient, run
from tailrace.proxy.admin.noise import EVERY, Quieter
from tailrace.proxy.admin.port import AdminPort


def test_malformed_requests_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body() -> None:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = AdminPort(None, sock, None, lambda _: ("text/plain", b""))  # type: ignore[arg-type]
        await port.start()
        for _ in range(20):
            async with RawClient(port.shown) as client:
                await client.send(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
                assert (await client.read_answer()).status == 400
        await port.stop()

    run(body())
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("INFO", None)]
    assert caplog.messages == ["the admin port got 1 malformed requests, the last from 127.0.0.1"]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nauthorization: Bearer %b\r\n\r\n" % (b"let-me-in" * 2000),
        b"GET / HTTP/1.1\r\nauthorization: Bearer let-me-in\x00\r\n\r\n",
        b"GET /?key=let-me-in HTTP/9.9\r\nhost: g\r\n\r\n",
        b"LET /let-me-in\r\n\r\n",
    ],
    ids=["too long", "not allowed", "another version", "none"],
)
def test_nothing_of_what_is_no_request_is_repeated(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def body() -> bytes:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = AdminPort(None, sock, None, lambda _: ("text/plain", b""))  # type: ignore[arg-type]
        await port.start()
        async with RawClient(port.shown) as client:
            await client.send(sent)
            answer = await client.read_answer()
        await port.stop()
        assert answer.status == 400
        return answer.head.raw + answer.body

    assert b"let-me-in" not in run(body())
    assert "let-me-in" not in caplog.text


def test_the_next_line_counts_all_since_and_own_failures_keep_their_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 100.0
    quieter = Quieter(logging.getLogger("tailrace"), lambda: now)
    for step in (0.0, 1.0, 1.0, EVERY):
        now += step
        quieter.exception("Error handling request from %s", "10.0.0.1", exc_info=BadHttpMessage("x"))
    assert caplog.messages == [
        "the admin port got 1 malformed requests, the last from 10.0.0.1",
        "the admin port got 3 malformed requests, the last from 10.0.0.1",
    ]
    caplog.clear()
    quieter.exception("Unhandled %s", "x", exc_info=ValueError("y"))
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "Unhandled x")
    assert record.exc_info is not None
