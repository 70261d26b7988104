"""How an answer is framed, and its id, are the core's alone, whatever plugins write into its head."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from fakes import RawClient, Upstream, chat_answer, gateway, json_answer, run, sse_answer, stream_of, yaml_for
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
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
