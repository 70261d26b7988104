"""Calls that share one answer: a plugin that has them do so, and what tests act with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from fakes import CHAT, PATH, RawClient, chat_chunk, chunked, event, sse_head, until
from tailrace.proxy.call import Call
from tailrace.proxy.head import Head
from tailrace.proxy.outcome import Outcome
from tailrace.proxy.plugin import Key, Plugin
from tailrace.proxy.publication import Publication
from tailrace.proxy.reply import Reply
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import Bench
from tailrace.proxy.testing.worker import Connection, Request

LEADS: Key[Publication] = Key("shares")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    limit: int = 1 << 20


class Shares(Plugin[Config]):
    Config = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.led: dict[str, Publication] = {}
        self.ends: list[Outcome] = []

    def on_request(self, call: Call) -> Coroutine[Any, Any, Reply | None] | None:
        assert call.body is not None
        user = call.body.text("user") or ""
        if user in self.led and self.led[user].open:
            return self._follow(call, user)
        self._lead(call, user)
        return None

    def _lead(self, call: Call, user: str) -> None:
        self.led[user] = call[LEADS] = call.publish(self.config.limit)

    async def _follow(self, call: Call, user: str) -> Reply | None:
        while user in self.led and self.led[user].open:
            follower = self.led[user].join(call)
            async with call.waiting():
                if call.stream and await follower.begun():
                    return Reply.follow(follower)
                whole = None if call.stream else await follower.whole()
            follower.leave()
            if whole is not None:
                return Reply(200, whole, source="follow")
        self._lead(call, user)
        return None

    def on_stream(self, call: Call, head: Head) -> Publication | None:
        return call[LEADS].tap(head) if LEADS in call else None

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        self.ends.append(outcome)
        if LEADS in call and self.led.get(call.body.text("user") or "") is call[LEADS]:  # type: ignore[union-attr]
            del self.led[call.body.text("user") or ""]  # type: ignore[union-attr]


STREAM = {**CHAT, "stream": True}


ROLE = chat_chunk("", role="assistant")


PIECES = [chat_chunk(f"piece {number} ") for number in range(20)]


LAST = [chat_chunk(finish="stop"), event("[DONE]")]


WHOLE = [ROLE, *PIECES, *LAST]


class Worker:
    """Sends a stream's events as it is told to."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self._turn = asyncio.Event()

    async def __call__(self, conn: Connection, request: Request) -> None:
        self.connections.append(conn)
        await conn.send(sse_head())
        await conn.wait_closed()

    async def tell(self, *events: bytes, end: bool = False, of: int = -1) -> None:
        await until(lambda: len(self.connections) > max(of, 0), "the worker was not asked")
        await self.connections[of].send(b"".join(map(chunked, events)) + (chunked(b"") if end else b""))


class Clients:
    """Connections of one test."""

    def __init__(self, bench: Bench, stack: AsyncExitStack) -> None:
        self._bench = bench
        self._stack = stack

    async def begin(self, body: Any = STREAM) -> RawClient:
        client = await self._stack.enter_async_context(RawClient(self._bench.url))
        await client.request("POST", PATH, orjson.dumps(body))
        return client


@asynccontextmanager
async def sharing(answer: Any, limit: int = 1 << 20) -> AsyncIterator[tuple[Bench, Clients]]:
    config = {"limit": limit}
    async with plugin_bench(Shares, config, answer=answer) as bench, AsyncExitStack() as stack:
        yield bench, Clients(bench, stack)
        await until(lambda: not bench.process.service.active, "a call goes on")


async def waits(bench: Bench, followers: int) -> None:
    """Until so many follow."""
    shares: Any = bench.plugin
    await until(lambda: any(len(each._followers) == followers for each in shares.led.values()), "nobody follows")
