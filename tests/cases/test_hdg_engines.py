"""HDG-01 down to the engines: the loser's sequence leaves its engine, and no more tokens are made for it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from fakes import RawClient, gateway, run, until, yaml_for
from scrape import Scrape
from sidecars import CHAT, HELLO, STREAMED, found, sidecar, simulated, url_of

PLUGINS = """[{hedge: {unknown: 100ms, extra: 1, unary: true, floor_ms: 1}}, cases.policies:InOrder,
  cases.witness:Witness]"""


@asynccontextmanager
async def raced(**slow):
    """A gateway before two sidecars, the first of whose engines is slow."""
    async with simulated(**slow) as first, simulated() as second:
        async with sidecar(found(first.url)) as one, sidecar(found(second.url)) as two:
            yaml = yaml_for(url_of(one), url_of(two), plugins=PLUGINS).replace("{m:", "{tiny:")
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                yield SimpleNamespace(first=first, second=second, process=process, client=client)


@pytest.mark.parametrize("streams", [True, False])
def test_HDG_01_the_losers_sequence_leaves_its_engine(streams):
    """A stream's loser has not begun to speak; one of whole answers is in the middle of its own."""

    async def body():
        slow = {"ttft_ms": 60_000} if streams else {"itl_ms": 5, "answer_tokens": 0}
        async with raced(**slow) as r:
            asked = STREAMED if streams else {**HELLO, "max_tokens": 1500}
            answer = await r.client.post(CHAT, asked)
            assert answer.status == 200
            await until(lambda: r.first.scheduler.running == 0, "the loser's sequence goes on")
            made = r.first.metrics.generation_tokens
            assert (made > 0) is not streams
            assert sum(r.first.metrics.finish_reasons.values()) == 0
            await asyncio.sleep(0.1)
            assert r.first.metrics.generation_tokens == made, "tokens are made for nobody"
            assert Scrape(r.process).value("hedge_won_total") == 1

    run(body())
