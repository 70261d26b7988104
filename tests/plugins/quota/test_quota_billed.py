"""Budgets beside the ledger: what is counted is what is billed, and the ledger is believed where memory was lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes import CHAT, PATH, RawClient, Upstream, answer, event, gateway, run, sse_answer, stream_of, yaml_for
from limited import using
from tailrace.plugins.quota import Quota
from tailrace.plugins.quota.book import SPENT
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.ground import Places
from tailrace.proxy.ledger.sums import in_log

PRICES = """
currency: EUR
version: p1
prices:
  - {model: m, prompt: 1000, cached_prompt: 100, completion: 3000, per_request: 0.002}
"""


def usage_event(prompt: int, completion: int) -> bytes:
    return event({"id": "c", "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


SCRIPTS: tuple[Any, ...] = (
    using(10, 20),
    sse_answer([*stream_of(["a", "b"])[:-1], usage_event(11, 2), event("[DONE]")]),
    answer(200, b'{"id":"c","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,'
    b'"prompt_tokens_details":{"cached_tokens":8}}}'),
    answer(400, b'{"error":{"message":"no"}}'),
)  # fmt: skip


@asynccontextmanager
async def serving(folder: Path, upstream: Upstream, budget: str) -> AsyncIterator[tuple[GatewayProcess, RawClient]]:
    prices = folder / "prices.yaml"
    prices.write_text(PRICES)
    limits = f"[{{money: '{budget}', per: month}}]"
    plugins = f"- billing: {{prices: {prices}}}\n- quota: {{limits: {limits}, unknown: closed}}"
    yaml = yaml_for(upstream, plugins=plugins, more=f"state: {folder / 'state'}\n")
    async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
        yield process, client


def counted(process: GatewayProcess) -> int:
    """What the process's lease says is spent."""
    links = process.service.chain.pipeline.links
    quota = next(link.plugin for link in links if isinstance(link.plugin, Quota))
    purse = quota._asking.purse  # type: ignore[union-attr]
    return sum(purse._words[lease.at + SPENT] for lease in purse._leases.values())


def billed(folder: Path) -> list[int]:
    return [record.amount for record in in_log(folder / "state" / "ledger", 0, 2**63 - 1)]


def test_what_is_counted_is_what_is_billed_to_the_unit(tmp_path: Path) -> None:
    scripts = iter(SCRIPTS * 5)

    async def each(conn: Any, request: Any) -> None:
        await conn.send(next(scripts))

    async def body() -> None:
        async with Upstream(each) as upstream, serving(tmp_path, upstream, "1000") as (process, client):
            for number in range(len(SCRIPTS) * 5):
                got = await client.post(PATH, {**CHAT, "max_tokens": 40, "stream": number % 4 == 1})
                assert got.status in (200, 400)
            async with asyncio.timeout(10):
                while len(billed(tmp_path)) < len(SCRIPTS) * 5:
                    await asyncio.sleep(0.01)
            assert counted(process) == sum(billed(tmp_path))

    run(body())


def test_a_host_whose_memory_was_lost_counts_on_from_what_it_billed(tmp_path: Path) -> None:
    async def statuses(upstream: Upstream) -> list[int]:
        async with serving(tmp_path, upstream, "1") as (_, client):
            # 0.01 + 0.06 + 0.002 each.
            return [(await client.post(PATH, {**CHAT, "max_tokens": 20})).status for _ in range(8)]

    async def body() -> None:
        async with Upstream(using(10, 20)) as upstream:
            first = await statuses(upstream)
            assert first == [200] * 8
            shutil.rmtree(Places.of(tmp_path / "state").shared)
            later = await statuses(upstream)
            assert 4 <= later.count(200) <= 5
            assert later.count(429) == 8 - later.count(200)
            assert sum(billed(tmp_path)) <= 10**9

    run(body())
