"""A call ends and its client hears of it, even where a plugin breaks what would have told it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from fakes import (
    Connection,
    RawClient,
    Request,
    Upstream,
    chat_answer,
    chat_chunk,
    chunked,
    event,
    gateway,
    json_answer,
    run,
    sse_head,
    yaml_for,
)
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
from tailrace.proxy.head import Head
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply

CHAT = "/v1/chat/completions"
ASK = {"model": "m", "messages": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """No settings."""


class TextHeader(Plugin[Nothing]):
    Config: ClassVar[type] = Nothing

    def on_answer(self, call: Call, head: Head) -> None:
        head.headers.append((b"x-team", "red"))  # type: ignore[arg-type]


class OddWords(Plugin[Nothing]):
    Config: ClassVar[type] = Nothing

    async def on_request(self, call: Call) -> Reply | None:
        raise Reject(403, "forbidden", "\udce9 may not do this.")


class InnerCancelled(Plugin[Nothing]):
    Config: ClassVar[type] = Nothing

    async def on_request(self, call: Call) -> Reply | None:
        task = asyncio.ensure_future(asyncio.sleep(10))
        task.cancel()
        await task
        return None


class TextEdit(Plugin[Nothing]):
    Config: ClassVar[type] = Nothing

    async def on_request(self, call: Call) -> Reply | None:
        call.edit("max_tokens", "100")  # type: ignore[arg-type]
        return None


@pytest.mark.parametrize("plugin", ["TextHeader", "OddWords", "InnerCancelled", "TextEdit"])
def test_UPD_04_the_client_gets_an_answer_or_an_end_and_nothing_is_held(plugin: str) -> None:
    async def body() -> None:
        async with Upstream(json_answer(chat_answer("x"))) as upstream:
            yaml = yaml_for(upstream, plugins=f'["cases.test_upd_refusals:{plugin}"]')
            async with gateway(yaml) as process:
                async with RawClient(process.doors[0].shown) as client:
                    async with asyncio.timeout(3):
                        try:
                            answer: Any = await client.post(CHAT, ASK)
                        except (asyncio.IncompleteReadError, ConnectionError):
                            answer = None
                assert answer is None or answer.status in (500, 503)
                await asyncio.sleep(0.05)
                service = process.service
                assert (service.active, service.memory.used) == (0, 0)
                assert all(worker.inflight == 0 for worker in process.workers())

    run(body())


def test_UPD_02_a_large_error_event_in_pieces_is_no_clean_end() -> None:
    bad = event({"error": {"message": "x" * 100_000, "code": 500}})

    async def script(conn: Connection, request: Request) -> None:
        await conn.send(sse_head() + chunked(chat_chunk("a")))
        await asyncio.sleep(0.02)
        for start in range(0, len(bad), 8000):
            await conn.send(chunked(bad[start : start + 8000]))
            await asyncio.sleep(0.002)
        await conn.send(chunked(event("[DONE]")) + chunked(b""))

    async def body() -> None:
        async with Upstream(script) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                answer = await client.post(CHAT, {**ASK, "stream": True})
                assert not answer.complete
                assert b"[DONE]" not in answer.body

    run(body())


def test_SSE_13_a_large_terminal_event_is_a_clean_end() -> None:
    def of(kind: str, **fields: Any) -> bytes:
        return event({**fields, "type": kind}, kind)

    last = of("response.completed", response={"id": "resp_1", "output": [{"text": "x" * 200_000}]})

    async def script(conn: Connection, request: Request) -> None:
        await conn.send(sse_head() + chunked(of("response.output_text.delta", delta="hello")))
        await asyncio.sleep(0.02)
        await conn.send(chunked(last) + chunked(b""))

    async def body() -> None:
        async with Upstream(script) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                answer = await client.post("/v1/responses", {"model": "m", "input": "x", "stream": True})
                assert answer.complete
                assert answer.body.endswith(last)

    run(body())


def test_KAR_02_a_worker_that_took_the_request_and_died_is_not_asked_again() -> None:
    async def die(conn: Connection, request: Request) -> None:
        await asyncio.sleep(0.6)
        conn.rst()

    async def body() -> None:
        async with Upstream(json_answer(chat_answer("warm")), die) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                assert (await client.post(CHAT, ASK)).status == 200
                assert (await client.post(CHAT, ASK)).status == 502
                assert len(upstream.requests) == 2

    run(body())
