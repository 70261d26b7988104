"""What answers cost that were made for another call, and how they count for limits."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from billed import billed, cost, stream, unary
from fakes import CHAT, PATH, RawClient, answer, chunked, run, sse_answer, sse_head, until
from orjson import dumps
from scrape import Scrape

COLD = {**CHAT, "temperature": 0}
STREAM = {**COLD, "stream": True}
CACHE = "- cache: {}\n"
QUOTA = "- quota: {limits: [{tokens: 400, per: day}, {requests: 50, per: day}], unknown: closed}\n"


def test_kept_answers_are_free_and_on_no_record(tmp_path: Path) -> None:
    async def body() -> None:
        async with billed(tmp_path, unary(9, 7), behind=CACHE) as s:
            for how in ("miss", "hit", "hit"):
                assert (await s.client.post(PATH, COLD)).header("x-tailrace-cache") == how
            record = await s.record()
            assert record.amount == cost(9, 7)

    run(body())


@pytest.mark.parametrize("share", [0.25, 1])
def test_kept_answers_cost_their_share(tmp_path: Path, share: float) -> None:
    async def body() -> None:
        async with billed(tmp_path, unary(9, 7), more=f", kept_share: {share}", behind=CACHE) as s:
            for _ in range(3):
                await s.client.post(PATH, COLD)
            records = await s.records(3)
            assert sorted(record.amount for record in records) == sorted([cost(9, 7)] + [round(cost(9, 7) * share)] * 2)
            assert all((record.prompt, record.completion) == (9, 7) for record in records)
            assert s.value("unrecorded_total") == 0

    run(body())


def test_an_answer_that_others_share_is_charged_once_and_whole_though_its_client_left(tmp_path: Path) -> None:
    async def body() -> None:
        gate = asyncio.Event()
        events = stream(20)

        async def slow(conn: Any, request: Any) -> None:
            await conn.send(sse_head() + chunked(b"".join(events[:3])))
            await gate.wait()
            await conn.send(b"".join(map(chunked, events[3:])) + b"0\r\n\r\n")

        async with billed(tmp_path, slow, behind=CACHE) as s:
            url = s.process.doors[0].shown
            async with RawClient(url) as leader, RawClient(url) as follower:
                for client in (leader, follower):
                    await client.request("POST", PATH, dumps(STREAM))
                    await client.read_until(b"t2")
                leader.rst()
                await until(lambda: len(s.process.service.connections) == 3)
                gate.set()
                await follower.read_until(b"[DONE]")
            record = await s.record()
            assert record.amount == cost(9, 20)
            assert record.lost_completion == 0

    run(body())


def test_kept_answers_are_requests_and_their_tokens_are_free(tmp_path: Path) -> None:
    async def body() -> None:
        async with billed(tmp_path, unary(9, 7), behind=QUOTA + CACHE) as s:
            request = {**COLD, "max_tokens": 20}
            left = [(await s.client.post(PATH, request)).header("x-ratelimit-remaining-requests") for _ in range(40)]
            assert left[-1] == "10"
            assert (await s.client.post(PATH, {**request, "max_tokens": 21})).status == 200
            assert Scrape(s.process).value("quota_refused_total", what="tokens") in (None, 0)

    run(body())


def test_kept_answers_take_their_share_of_tokens(tmp_path: Path) -> None:
    async def body() -> None:
        async with billed(tmp_path, sse_answer(stream(7)), more=", kept_share: 1", behind=QUOTA + CACHE) as s:
            request = {**STREAM, "max_tokens": 20}
            seen = []
            for _ in range(40):
                async with RawClient(s.process.doors[0].shown) as client:
                    seen.append((await client.post(PATH, request)).status)
            # 16 tokens each, and room for what one of them may need.
            assert 429 in seen
            assert 3 < seen.index(429) <= 24

    run(body())


TOKENS = answer(200, dumps({"tokens": [1] * 600, "count": 600, "max_model_len": 9}))


def test_kept_answers_of_which_no_usage_is_known_cost_their_share_of_a_request(tmp_path: Path) -> None:
    async def body() -> None:
        async with billed(tmp_path, TOKENS, more=", kept_share: 0.5", behind=CACHE) as s:
            for _ in range(2):
                await s.client.post("/tokenize", {"model": "m", "prompt": "x"})
            assert sorted(record.amount for record in await s.records(2)) == [500_000, 1_000_000]

    run(body())


def test_kept_answers_of_which_no_usage_is_known_are_no_tokens(tmp_path: Path) -> None:
    quota = "- quota: {limits: [{tokens: 100000, per: day}], unknown: closed}\n"

    async def body() -> None:
        async with billed(tmp_path, TOKENS, more=", kept_share: 1", behind=quota + CACHE) as s:
            left = []
            for how in ("miss", "hit", "hit", "hit"):
                given = await s.client.post("/tokenize", {"model": "m", "prompt": "y" * 3000})
                assert given.header("x-tailrace-cache") == how
                left.append(given.header("x-ratelimit-remaining-tokens"))
            assert left[1] == left[2] == left[3]

    run(body())


def test_who_follows_and_leaves_pays_for_what_there_was_until_then(tmp_path: Path) -> None:
    quota = "- quota: {limits: [{tokens: 4000, per: day}], unknown: closed}\n"

    async def body() -> None:
        gate = asyncio.Event()
        events = stream(20)

        async def slow(conn: Any, request: Any) -> None:
            await conn.send(sse_head() + chunked(b"".join(events[:9])))
            await gate.wait()
            await conn.send(b"".join(map(chunked, events[9:])) + b"0\r\n\r\n")

        async with billed(tmp_path, slow, more=", kept_share: 0.5", behind=quota + CACHE) as s:
            url = s.process.doors[0].shown
            async with RawClient(url) as leader, RawClient(url) as follower:
                for client in (leader, follower):
                    await client.request("POST", PATH, dumps({**STREAM, "max_tokens": 50}))
                    await client.read_until(b"t8 ")
                follower.rst()
                left = (await s.records(1))[0]
                assert (left.ending, left.completion, left.amount) == ("client_gone", 8, cost(9, 8) // 2)
                gate.set()
                await leader.read_until(b"[DONE]")
            assert [record.amount for record in await s.records(2)] == [left.amount, cost(9, 20)]
            only = {**STREAM, "max_tokens": 50}
            kept = await s.client.post(PATH, only, {"cache-control": "only-if-cached"})
            # Less 29 tokens, half of 17, and what this one may need.
            assert 3700 < int(kept.header("x-ratelimit-remaining-tokens") or 0) <= 4000 - 29 - 8 - 50

    run(body())


def test_nobody_follows_an_answer_of_another_model(tmp_path: Path) -> None:
    prices = (
        "currency: EUR\nprices:\n  - {model: m, prompt: 2, completion: 8}\n  - {model: n, prompt: 1, completion: 1}\n"
    )
    models = "{m: {workers: [W0]}, n: {workers: [W1]}}"
    behind = CACHE + "- fallback: {to: [{model: n}]}\n"

    async def body() -> None:
        gate = asyncio.Event()

        async def bad(conn: Any, request: Any) -> None:
            await gate.wait()
            await conn.send(answer(500, b'{"error":{"message":"x"}}'))

        worth = {"prices": prices, "models": models, "more": ", kept_share: 1"}
        async with billed(tmp_path, bad, unary(9, 7), behind=behind, **worth) as s, AsyncExitStack() as stack:
            url = s.process.doors[0].shown
            clients = [await stack.enter_async_context(RawClient(url)) for _ in range(3)]
            for client in clients:
                await client.request("POST", PATH, dumps(COLD))
            await until(lambda: s.process.service.active == 3)
            gate.set()
            answers = [await client.read_answer() for client in clients]
            assert [each.header("x-tailrace-fallback") for each in answers] == ["model=n"] * 3
            assert [record.amount for record in await s.records(3)] == [16_000] * 3

    run(body())
