"""Bytes at the edge: requests spelled by hand, and answers taken apart without trusting anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from fakes import RawClient

from cases.scene import PATH, Scene

BODY = b'{"model":"m","messages":[]}'
LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
GET = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n"
REQUEST_ID = "x-request-id"


def post(lines: bytes = LENGTH, body: bytes = BODY, *, version: bytes = b"HTTP/1.1", path: str = PATH) -> bytes:
    """A POST whose framing lines and body are the caller's."""
    return b"POST %b %b\r\nhost: a\r\ncontent-type: application/json\r\n%b\r\n%b" % (
        path.encode(),
        version,
        lines,
        body,
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """One answer as it stands in the bytes."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> Any:
        """The error object, in OpenAI's or Anthropic's shape."""
        return orjson.loads(self.body)["error"]


def answers_in(raw: bytes) -> list[Shown]:
    """Every answer with a length, one behind the other; anything else is an error."""
    shown = []
    while raw:
        head, mark, raw = raw.partition(b"\r\n\r\n")
        assert mark
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status = first.split(" ")[:2]
        assert version == "HTTP/1.1"
        headers = dict(line.lower().split(": ", 1) for line in lines)
        assert len(headers) == len(lines)
        length = int(headers.get("content-length", 0))
        shown.append(Shown(int(status), headers, raw[:length]))
        assert len(raw) >= length
        raw = raw[length:]
    return shown


async def until_closed(scene: Scene, data: bytes) -> list[Shown]:
    """Send bytes on a connection of its own, and read what comes until the gateway closes it."""
    async with RawClient(scene.url) as client:
        await client.send(data)
        return answers_in(await client.read_until_close())


async def refused(scene: Scene, data: bytes, status: int = 400) -> Shown:
    """Check that bytes are refused once, that the connection is closed and that no worker heard of it."""
    before = len(scene.upstream.requests)
    shown = await until_closed(scene, data)
    assert [answer.status for answer in shown] == [status]
    check_error(shown[0])
    assert shown[0].headers["connection"] == "close"
    assert len(scene.upstream.requests) == before
    return shown[0]


def check_error(answer: Shown, *, anthropic: bool = False) -> None:
    """Check that an answer is an error in the API's shape, with a request id."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers[REQUEST_ID].startswith("req_")
    body = orjson.loads(answer.body)
    if anthropic:
        assert body["type"] == "error"
        assert body["request_id"] == answer.headers[REQUEST_ID]
        assert set(body["error"]) == {"type", "message"}
    else:
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert "Traceback" not in body["error"]["message"]
