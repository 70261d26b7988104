"""How an answer is framed, and its id, are the core's alone, whatever plugins write into its head."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from fakes import (
    RawClient,
    Upstream,
    answer,
    chat_answer,
    event,
    gateway,
    json_answer,
    run,
    sse_answer,
    stream_of,
    yaml_for,
)
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
from tailrace.proxy.framing import head_lines
from tailrace.proxy.head import Head
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply

OURS = ("content-length", "transfer-encoding", "connection", "keep-alive", "x-request-id")
WRITTEN = [
    (b"content-length", b"7"),
    (b"Transfer-Encoding", b"chunked"),
    (b"CONNECTION", b"close"),
    (b"keep-alive", b"timeout=5"),
    (b"x-request-id", b"mine"),
    (b"x-kept", b"a"),
]


@dataclass(frozen=True)
class Where:
    where: str


class Writes(Plugin[Where]):
    """Writes framing headers where its configuration says."""

    Config = Where

    async def on_request(self, call: Call) -> Reply | None:
        match self.config.where:
            case "reply":
                return Reply(200, b"{}", headers=list(WRITTEN))
            case "pieces":
                return Reply(200, pieces(), headers=list(WRITTEN))
            case "reject":
                raise Reject(403, "no", "no", headers=tuple(WRITTEN))
        return None

    def on_answer(self, call: Call, head: Head) -> None:
        if self.config.where.startswith("answer"):
            head.headers.extend(WRITTEN)
        if self.config.where == "answer, then fails":
            raise ValueError("broken")


MESSAGE = {
    "role": "assistant",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
MESSAGE_EVENTS = [
    event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, "content_block_delta"),
    event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, "message_delta"),
    event({"type": "message_stop"}, "message_stop"),
]
THEIRS = b"Request-Id: theirs\r\n"


@pytest.mark.parametrize("plugins", ["[]", "- test_framing:Names: {where: ''}"])
@pytest.mark.parametrize(
    ("path", "told", "status"),
    [
        ("/v1/messages", answer(200, orjson.dumps(MESSAGE), headers=THEIRS), 200),
        ("/v1/messages", sse_answer(MESSAGE_EVENTS).replace(b"\r\n\r\n", b"\r\n" + THEIRS + b"\r\n", 1), 200),
        ("/v1/messages", answer(400, b'{"error":{"message":"no"}}', headers=THEIRS), 400),
        ("/v1/messages/count_tokens", json_answer({"input_tokens": 1}), 200),
        ("/v1/messages/batches", b"", 501),
        ("/v1/messages/x", b"", 404),
    ],
    ids=["whole", "stream", "refused", "counted", "unsupported", "unmatched"],
)
def test_the_id_has_the_name_that_anthropics_sdk_reads_too(path: str, told: bytes, status: int, plugins: str) -> None:
    async def main() -> None:
        async with Upstream(told) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            async with RawClient(process.doors[0].shown) as client:
                got = await client.post(path, {"model": "m", "messages": [], "max_tokens": 1})
                assert (got.status, got.complete) == (status, True)
                assert got.head.all("request-id") == got.head.all("x-request-id")
                assert len(got.head.all("request-id")) == 1
                assert str(got.header("request-id")).startswith("req_")

    run(main())


def test_what_never_became_a_call_has_it_too_and_other_apis_have_not() -> None:
    async def main() -> None:
        async with Upstream(json_answer(chat_answer("hi"))) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                got = await client.post("/v1/chat/completions", {"model": "m", "messages": []})
                assert got.head.all("request-id") == []
                await client.send(b"GET /v1/messages HTTP/1.1\r\nhost: a\r\nx y: b\r\n\r\n")
                got = await client.read_answer()
                assert (got.status, got.header("request-id")) == (400, got.header("x-request-id"))

    run(main())


class Names(Writes):
    """Gives answers an id of its own."""

    def on_answer(self, call: Call, head: Head) -> None:
        head.headers.append((b"Request-ID", b"mine"))


async def pieces() -> AsyncIterator[bytes]:
    yield b"{"
    yield b"}"


@pytest.mark.parametrize("where", ["reply", "pieces", "reject", "answer", "answer, then fails"])
@pytest.mark.parametrize("stream", [False, True])
def test_there_is_one_of_each_framing_header_and_it_is_ours(where: str, stream: bool) -> None:
    body: dict[str, Any] = {"model": "m", "messages": [], "stream": stream}

    async def main() -> None:
        good = sse_answer(stream_of(["a"])) if stream else json_answer(chat_answer("hi"))
        async with Upstream(good) as upstream:
            yaml = yaml_for(upstream, plugins=f"- test_framing:Writes: {{where: '{where}'}}")
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                for _ in range(2):
                    got = await client.post("/v1/chat/completions", body)
                    names = [name.lower() for name, _ in got.head.headers if name.lower() in OURS]
                    chunked = where == "pieces" or (where == "answer" and stream)
                    assert sorted(names) == sorted(
                        ["transfer-encoding" if chunked else "content-length", "x-request-id"]
                    )
                    assert str(got.header("x-request-id")).startswith("req_")
                    assert got.header("x-kept") == "a"
                    assert got.complete

    run(main())


@pytest.mark.parametrize("where", ["reply", "pieces", "reject"])
def test_a_reply_to_HEAD_has_no_body(where: str) -> None:
    async def main() -> None:
        async with Upstream() as upstream:
            yaml = yaml_for(upstream, plugins=f"- test_framing:Writes: {{where: {where}}}").replace(
                f'{{workers: ["{upstream.url}"]}}', "{pool: p}"
            )
            yaml += f'pools: {{p: {{workers: ["{upstream.url}"]}}}}\nroutes: [{{path: /x, pool: p, methods: [HEAD]}}]\n'
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                await client.request("HEAD", "/x", headers={"connection": "close"})
                head, mark, rest = (await client.read_until_close()).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 403" if where == "reject" else b"HTTP/1.1 200")
                assert (mark, rest) == (b"\r\n\r\n", b"")

    run(main())


@pytest.mark.parametrize("name", [b"content-length: ", b"content-length:", b"", b" x", b"a b", b"x\r\ny"])
def test_what_is_no_name_is_left_out(name: bytes) -> None:
    said = head_lines(Head(200, [(b"x-first", b"1"), (name, b"5"), (b"x-last", b"2\r\nx-evil: 3")]), "req_1", False)
    lines = said.split(b"\r\n")[1:-1]
    kept = [b"x: 5"] if name == b"x\r\ny" else []
    assert lines == [b"x-first: 1", *kept, b"x-last: 2", b"x-request-id: req_1"]
