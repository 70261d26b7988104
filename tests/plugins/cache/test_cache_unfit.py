"""What is nothing for others: answers in a coding or another type, cut ones, another model's; and old ones for some."""

from __future__ import annotations

import asyncio
import gzip
import time
from typing import Any

import orjson
import pytest
from cached import COLD, ask, cache
from fakes import PATH, RawClient, answer, chat_answer, json_answer, run, until
from tailrace.plugins.cache import Cache
from tailrace.plugins.fallback import Fallback
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import entry_of

VECTORS = {"object": "list", "data": [{"index": 0, "embedding": [0.5] * 30_000}], "usage": {"prompt_tokens": 2}}
ASKED = {"model": "m", "input": "hi"}


def http(body: bytes, *headers: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + b"".join([each + b"\r\n" for each in headers]) + b"\r\n" + body


WHOLE = orjson.dumps(VECTORS)
PACKED = gzip.compress(WHOLE)
TYPE = b"content-type: application/json"


@pytest.mark.parametrize(
    "answer",
    [
        http(PACKED, TYPE, b"content-encoding: gzip", b"content-length: %d" % len(PACKED)),
        http(WHOLE[:80_000], TYPE, b"connection: close"),
    ],
)
def test_what_nobody_else_could_read_is_not_kept(answer: bytes) -> None:
    async def script(conn: Any, request: Any) -> None:
        await conn.send(answer)
        if b"close" in answer[:100]:
            conn.close()

    async def body() -> None:
        async with plugin_bench(Cache, {}, answer=script) as bench:
            answers = [await bench.post("/v1/embeddings", ASKED) for _ in range(2)]
            assert [each.header("x-tailrace-cache") for each in answers] == ["miss", "miss"]

    run(body())


def test_those_who_wait_for_what_they_could_not_read_ask_for_themselves() -> None:
    async def body() -> None:
        gate = asyncio.Event()
        packed = gzip.compress(orjson.dumps(chat_answer("x")))

        async def script(conn: Any, request: Any) -> None:
            await gate.wait()
            await conn.send(http(packed, TYPE, b"content-encoding: gzip", b"content-length: %d" % len(packed)))

        async with plugin_bench(Cache, {}, answer=script) as bench:
            asking = [asyncio.ensure_future(bench.post(PATH, COLD)) for _ in range(3)]
            await until(lambda: bench.process.service.active == 3)
            gate.set()
            answers = [await each for each in asking]
            assert all(each.header("content-encoding") == "gzip" for each in answers)
            assert sorted(each.header("x-tailrace-cache") or "" for each in answers) == ["bypass", "bypass", "miss"]

    run(body())


def test_an_answer_may_be_too_old_for_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()

    async def body() -> None:
        async with cache() as (bench, worker):
            await ask(bench)
            monkeypatch.setattr(time, "time", lambda: now + 30)
            assert await ask(bench, headers={"cache-control": "max-age=60"}) == "hit"
            assert await ask(bench, headers={"cache-control": "max-age=20"}) == "miss"
            assert await ask(bench) == "hit"
            assert worker.asked == 2
            monkeypatch.setattr(time, "time", lambda: now + 31)
            assert (await bench.post(PATH, COLD, {"cache-control": "max-age=0, only-if-cached"})).status == 504

    run(body())


def test_every_line_of_cache_control_counts() -> None:
    async def body() -> None:
        raw = orjson.dumps(COLD)
        lines = "cache-control: no-store\r\ncache-control: max-age=60\r\ncontent-type: application/json\r\n"
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\n{lines}content-length: {len(raw)}\r\n\r\n".encode()
        async with cache() as (bench, _), RawClient(bench.url) as client:
            await client.send(head + raw)
            assert (await client.read_answer()).header("x-tailrace-cache") == "bypass"
            assert await ask(bench) == "miss"

    run(body())


@pytest.mark.parametrize("control", ["no-cache", "max-age=0"])
def test_who_wants_a_new_answer_gets_no_old_one(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        good = [True]

        async def script(conn: Any, request: Any) -> None:
            said = json_answer(chat_answer("x")) if good else answer(500, b'{"error":{"message":"x"}}')
            await conn.send(said)

        behind = [entry_of(Fallback, {"to": [{"cached": True}]})]
        async with plugin_bench(Cache, {"ttl": "1m", "stale": "1h"}, answer=script, before=behind) as bench:
            await ask(bench)
            good.clear()
            now = time.time()
            monkeypatch.setattr(time, "time", lambda: now + 62)
            bench.plugin._kept._shelf._now = time.time  # type: ignore[attr-defined]
            assert (await bench.post(PATH, COLD)).status == 200
            assert (await bench.post(PATH, COLD, {"cache-control": control})).status == 500

    run(body())
