"""What becomes of calls that are not over when the time to finish is: each client is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from fakes import CHAT, PATH, RawClient, Upstream, chunked, decoded, run, sse_head, stream_of, until, yaml_for
from tailrace.proxy.call import Call
from tailrace.proxy.config import setting
from tailrace.proxy.gateway import GatewayProcess, running
from tailrace.proxy.outcome import Outcome
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How it waits."""

    way: str = setting()


class Waits(Plugin[Config]):
    """Holds every call for ever, in one way or another."""

    Config = Config
    entered = 0
    outcomes: list[Outcome]

    async def on_request(self, call: Call) -> Reply | None:
        """Wait."""
        Waits.entered += 1
        way = self.config.way
        if way in ("events", "bytes"):
            return Reply(200, words(way), content_type=b"text/event-stream" if way == "events" else b"text/plain")
        try:
            async with call.waiting():
                await asyncio.Event().wait()
        finally:
            if way == "tidies up":
                await asyncio.sleep(0.05)
            elif way == "stays":
                while not call.client.gone:
                    await asyncio.sleep(0.01)
        return None

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Remember it."""
        Waits.outcomes.append(outcome)


async def words(way: str) -> AsyncIterator[bytes]:
    yield b"data: one\n\n" if way == "events" else b"one"
    await asyncio.Event().wait()


async def ended_by_a_drain(way: str) -> tuple[bytes, Outcome]:
    """What a client reads whose call waits in this way when the time is over, and what came of the call."""
    Waits.entered, Waits.outcomes = 0, []
    plugin = f"- '{Waits.__module__}:Waits': {{way: {way}}}"
    settings = decoded(yaml_for("http://127.0.0.1:1", plugins=plugin, more="pre_stop: 0\ndrain: 0\n"))
    async with running(settings) as process, RawClient(process.doors[0].shown) as client:
        await client.request("POST", PATH, b'{"model":"m","messages":[]}')
        await until(lambda: Waits.entered)
        if way in ("events", "bytes"):
            await client.read_until(b"one")
        rest = await drained(process, client)
        await until(lambda: Waits.outcomes)
        return rest, Waits.outcomes[0]


async def drained(process: GatewayProcess, client: RawClient) -> bytes:
    reading = asyncio.ensure_future(client.read_until_close())
    await process.drain(asyncio.Event())
    await process.close()
    try:
        return await reading
    except ConnectionResetError:
        return b"<reset>"


def test_a_call_that_waits_in_a_plugin_is_refused() -> None:
    for way in ("waits", "tidies up"):
        rest, outcome = run(ended_by_a_drain(way))
        assert rest.startswith(b"HTTP/1.1 503 ")
        assert b'"server_shutting_down"' in rest
        assert b"retry-after: 1\r\n" in rest
        assert b"connection: close\r\n" in rest
        assert outcome.fault is not None
        assert not outcome.fault.sent


def test_an_answer_that_a_plugin_makes_ends_so_that_its_client_can_tell() -> None:
    rest, outcome = run(ended_by_a_drain("events"))
    assert b"server_shutting_down" in rest
    assert not rest.endswith(b"0\r\n\r\n")
    assert outcome.status == 503
    rest, outcome = run(ended_by_a_drain("bytes"))
    assert not rest.strip()
    assert outcome.status == 503


def test_a_plugin_that_does_not_let_go_keeps_nobody() -> None:
    rest, _ = run(ended_by_a_drain("stays"))
    assert rest in (b"<reset>", b"")


def test_a_stream_whose_last_event_is_there_ends_well(caplog: pytest.LogCaptureFixture) -> None:
    """Its worker's end of the framing comes when the call is over."""

    async def body() -> None:
        shown, drained_at = asyncio.Event(), asyncio.Event()

        async def script(conn: Any, request: Any) -> None:
            await conn.send(sse_head() + b"".join(map(chunked, stream_of(["one"]))))
            shown.set()
            await drained_at.wait()
            with suppress(OSError):
                await conn.send(chunked(b""))

        async with Upstream(script) as upstream:
            settings = decoded(yaml_for(upstream, more="pre_stop: 0\ndrain: 0\n"))
            async with running(settings) as process, RawClient(process.doors[0].shown) as client:
                await client.request("POST", PATH, orjson.dumps({**CHAT, "stream": True}))
                await client.read_until(b"[DONE]")
                answer = await drained(process, client)
                drained_at.set()
                await asyncio.sleep(0.05)
                assert answer.endswith(b"0\r\n\r\n")
                assert answer.count(b"0\r\n\r\n") == 1

    run(body())
    assert [record for record in caplog.records if record.exc_info] == []
