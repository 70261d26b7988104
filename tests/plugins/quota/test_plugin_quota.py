"""Limits on calls that go through a gateway: admitted, refused, settled and told."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes import (
    CHAT,
    GOOD,
    PATH,
    Connection,
    RawClient,
    Request,
    run,
    sse_answer,
    stream_of,
)
from limited import limited, using
from tailrace.proxy.testing import event

USAGE = event({"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})


def test_requests_are_counted_and_the_next_one_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[{requests: 5, per: day, of: tenant}]") as s:
            left = []
            for _ in range(5):
                got = await s.ask(tenant="a")
                assert got.status == 200
                assert got.header("x-ratelimit-limit-requests") == "5"
                left.append(got.header("x-ratelimit-remaining-requests"))
            assert left == ["4", "3", "2", "1", "0"]
            refused = await s.ask(tenant="a")
            assert (refused.status, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
            assert refused.json()["error"]["message"] == "The limit of 5 requests per day is reached."
            assert 0 < int(refused.header("retry-after")) <= 86_400
            assert refused.header("x-ratelimit-remaining-requests") == "0"
            assert (await s.ask(tenant="b")).status == 200
            assert len(s.upstream.requests) == 6

    run(body())


def test_LIM_13_what_was_refused_or_never_sent_takes_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[{requests: 3, per: day}, {tokens: 500, per: day}]", using(10, 10)) as s:
            for _ in range(40):
                assert (await s.ask({**CHAT, "max_tokens": 100_000}, key="k")).status == 429
            for path, bad in ((PATH, {"messages": []}), ("/v1/nothing", CHAT), (PATH, {**CHAT, "max_tokens": "x"})):
                assert (await s.ask(bad, path, key="other")).status in (400, 404)
            for _ in range(3):
                assert (await s.ask({**CHAT, "max_tokens": 10}, key="other")).status == 200
            assert (await s.ask({**CHAT, "max_tokens": 10}, key="other")).status == 429

    run(body())


def test_tokens_are_settled_to_what_was_used(tmp_path: Path) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[{tokens: 1000, per: day}]", using(20, 30)) as s:
            answers = [await s.ask({**CHAT, "max_tokens": 400}, key="k") for _ in range(30)]
            served = sum(got.status == 200 for got in answers)
            # 50 tokens each: the last of a thousand are given to answers that are held to what is left.
            assert 17 <= served <= 20
            assert [got.status for got in answers] == [200] * served + [429] * (30 - served)
            bounds = [orjson.loads(request.body)["max_tokens"] for request in s.upstream.requests]
            assert bounds[0] == 400
            assert bounds[-1] < 400
            assert bounds == sorted(bounds, reverse=True)

    run(body())


def test_LIM_01_a_burst_gets_exactly_the_limit(tmp_path: Path) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[{requests: 10, per: day}]") as s:
            clients = [await RawClient.connect(s.process.doors[0].shown) for _ in range(200)]
            answers = await asyncio.gather(*(client.post(PATH, CHAT) for client in clients))
            assert sum(got.status == 200 for got in answers) == 10
            assert sum(got.status == 429 for got in answers) == 190
            for client in clients:
                await client.close()

    run(body())


def test_what_runs_at_once_is_bounded_and_comes_back(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def slow(conn: Connection, request: Request) -> None:
        await go.wait()
        await conn.send(GOOD)

    async def body() -> None:
        async with limited(tmp_path, "[{concurrent_requests: 3}]", slow) as s:
            clients = [await RawClient.connect(s.process.doors[0].shown) for _ in range(3)]
            for client in clients:
                await client.request("POST", PATH, orjson.dumps(CHAT))
            await s.upstream.asked(3)
            refused = await s.ask()
            assert refused.status == 429
            assert refused.header("retry-after") == "1"
            await clients[0].close()  # who leaves makes room, too
            go.set()
            assert [(await client.read_answer()).status for client in clients[1:]] == [200, 200]
            for client in clients[1:]:
                await client.close()
            await asyncio.sleep(0.1)
            assert (await s.ask()).status == 200

    run(body())


def test_a_stream_is_settled_by_its_usage_and_shows_no_more_than_was_asked(tmp_path: Path) -> None:
    async def body() -> None:
        async with limited(
            tmp_path, "[{tokens: 5000, per: day}]", sse_answer([*stream_of(["a", "b"])[:-1], USAGE, event("[DONE]")])
        ) as s:
            got = await s.ask({**CHAT, "stream": True, "max_tokens": 4}, key="k")
            assert got.complete
            assert b'"usage"' not in got.body
            later = await s.ask({**CHAT, "max_tokens": 4}, key="k")
            assert int(later.header("x-ratelimit-remaining-tokens")) > 4800

    run(body())


@pytest.mark.parametrize(("unknown", "status"), [("open", 200), ("closed", 503)])
def test_without_an_authority_the_policy_decides_at_once(tmp_path: Path, unknown: str, status: int) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[{requests: 5, per: day}]", more=f", unknown: {unknown}") as s:
            await s.process._host.close()  # type: ignore[union-attr]
            got = await s.ask()
            assert got.status == status
            if status == 503:
                assert got.json()["error"]["code"] == "quota_unavailable"
            assert ("unknown_total", {}, 1) in s.quota.metrics()

    run(body())


def test_with_a_lease_admission_ends_at_its_first_step(tmp_path: Path) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[{requests: 5000, per: day}]") as s:
            assert (await s.ask()).status == 200
            before = s.quota.waited
            for _ in range(20):
                assert (await s.ask()).status == 200
            assert s.quota.waited == before

    run(body())


def test_messages_are_told_in_their_own_words(tmp_path: Path) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[{requests: 1, per: day}]") as s:
            ask = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
            await s.ask(ask, "/v1/messages")
            refused = await s.ask(ask, "/v1/messages")
            assert refused.json()["error"]["type"] == "rate_limit_error"
            assert refused.header("anthropic-ratelimit-requests-remaining") == "0"
            assert refused.header("anthropic-ratelimit-requests-reset").endswith("Z")

    run(body())


def test_a_budget_in_money_is_not_ignored_where_nothing_has_a_price(tmp_path: Path) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[]") as s:
            refused = await s.ask(key="k", limits=[{"money": "5", "per": "day"}])
            assert (refused.status, refused.json()["error"]["code"]) == (503, "quota_unavailable")
            assert (await s.ask(key="k2")).status == 200

    run(body())


def seconds(text: str) -> float:
    """A length of time as `6m0s` says it."""
    units = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"([0-9]+)(ms|[hms])", text))


@pytest.mark.parametrize("step", [3600.0, -3600.0, 11.0, -11.0, 90_000.0])
def test_LIM_09_a_clock_that_is_set_locks_nobody_out_and_gives_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[{requests: 10, per: day}]") as s:
            before = [await s.ask() for _ in range(5)]
            real = time.time
            monkeypatch.setattr(time, "time", lambda: real() + step)
            after = [await s.ask() for _ in range(6)]
            assert [got.status for got in (*before, *after)] == [200] * 10 + [429]
            resets = [seconds(got.header("x-ratelimit-reset-requests")) for got in (before[-1], after[0])]
            assert abs(resets[0] - resets[1]) < 5

    run(body())


def test_LIM_12_limits_of_a_key_are_added_lowered_raised_and_removed_in_the_middle(tmp_path: Path) -> None:
    def of(*limits: tuple[int, str, str]) -> list[dict[str, Any]]:
        return [{"requests": amount, "per": per, "zone": zone} for amount, per, zone in limits]

    async def body() -> None:
        async with limited(tmp_path, "[]") as s:

            async def statuses(count: int, *limits: tuple[int, str, str]) -> list[int]:
                return [(await s.ask(key="k", limits=of(*limits))).status for _ in range(count)]

            old = (100, "total", "UTC")
            assert await statuses(6, old) == [200] * 6
            # A window that is new to an old key begins at nothing.
            assert await statuses(4, old, (3, "day", "UTC")) == [200] * 3 + [429]
            assert await statuses(1, old, (2, "day", "UTC")) == [429]
            assert await statuses(3, old, (5, "day", "UTC")) == [200] * 2 + [429]
            assert await statuses(2, old) == [200] * 2
            assert await statuses(1, old, (5, "day", "UTC")) == [429]
            assert await statuses(1, old, (1, "day", "Asia/Tokyo")) == [200]
            assert await statuses(1, (9, "total", "UTC")) == [429]

    run(body())
