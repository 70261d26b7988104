"""Which calls are kept when they are over."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import pytest
from fakes import (
    CHAT,
    GOOD,
    PATH,
    RawClient,
    Upstream,
    chat_chunk,
    gateway,
    json_answer,
    run,
    sse_answer,
    until,
    yaml_for,
)
from tailrace.plugins.trace.keeping import Slowness
from tailrace.proxy.budget import Budget
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.trace.told import Record

BROKEN = json_answer({"error": {"message": "no", "code": 500}}, status=500)
STREAM = {**CHAT, "stream": True}
SAMPLED = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
TRACE = f"- trace: {json.dumps({'ratio': 0, 'slowest': 0})}\n"


def why(
    *scripts: Any, plugins: str = "", body: Any = CHAT, headers: dict[str, str] | None = None, gone: bool = False
) -> str:
    """What the call was kept for."""

    async def main() -> str:
        async with Upstream(*scripts) as upstream:
            async with gateway(yaml_for(upstream, plugins=TRACE + plugins)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    if gone:
                        await client.request("POST", PATH, json.dumps(body).encode())
                        await upstream.asked()
                    else:
                        await client.post(PATH, body, headers)
                await until(lambda: process.service.ring.all())
                record = Record.of(process.service.ring.all()[-1])
                assert record.trace is not None
                return record.trace.why

    return run(main())


async def never(conn: Any, request: Any) -> None:
    await conn.wait_closed()


def test_nothing_that_is_as_usual() -> None:
    assert why(GOOD) == ""


def test_what_a_client_wants() -> None:
    assert why(GOOD, headers=SAMPLED) == "sampled"


def test_an_error() -> None:
    assert why(BROKEN) == "error"


def test_a_stream_that_broke_off() -> None:
    assert why(sse_answer([chat_chunk("a")]), body=STREAM) == "error"


def test_not_what_a_client_did_wrong() -> None:
    assert why(GOOD, body={"model": "nobody's"}) == ""


def test_not_a_client_that_left() -> None:
    assert why(never, gone=True) == ""


def test_more_than_one_attempt() -> None:
    assert why(BROKEN, GOOD, plugins="- retry: {back_off: 1ms}\n") == "attempts"


def test_a_budget_that_was_missed() -> None:
    assert why(GOOD, plugins=f"- {__name__}:Hurried: {{ns: 1}}\n") == "budget"
    assert why(GOOD, plugins=f"- {__name__}:Hurried: {{ns: 60000000000}}\n") == ""


@dataclass(frozen=True)
class Config:
    ns: int


class Hurried(Plugin[Config]):
    """Gives calls a budget that nobody enforces."""

    Config = Config

    def on_request(self, call: Any) -> None:
        call.time = Budget(ends_ns=call.started_ns + self.config.ns)


def test_a_burst_of_errors_is_kept_in_part() -> None:
    async def body() -> None:
        async with Upstream(BROKEN) as upstream:
            trace = f"[trace: {json.dumps({'ratio': 0, 'rate': 3})}]"
            async with gateway(yaml_for(upstream, plugins=trace)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    for _ in range(40):
                        await client.post(PATH, CHAT)
                keeping = process.service.chain.pipeline.links[0].plugin.tracer.keeping
                assert keeping.kept["error"] >= 3
                assert keeping.kept["error"] + keeping.dropped == 40
                kept = [raw for raw in process.service.ring.all() if Record.of(raw).trace.why]
                assert len(kept) == keeping.kept["error"]
                assert keeping.dropped > 0

    run(body())


def test_what_clients_want_leaves_room_for_errors() -> None:
    async def body() -> None:
        async with Upstream(*[GOOD] * 40, BROKEN) as upstream:
            trace = f"[trace: {json.dumps({'ratio': 0, 'slowest': 0, 'rate': 15})}]"
            async with gateway(yaml_for(upstream, plugins=trace)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    for number in range(43):
                        await client.post(PATH, CHAT, SAMPLED if number < 40 else None)
                keeping = process.service.chain.pipeline.links[0].plugin.tracer.keeping
                assert keeping.kept["error"] == 3
                assert keeping.kept["sampled"] >= 12
                assert keeping.dropped > 0

    run(body())


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_just_that_share_is_slow(share: float) -> None:
    draw = random.Random(3)
    slowness = Slowness(share)
    found = [slowness.slow("chat", True, int(draw.lognormvariate(0, 1) * 1e8)) for _ in range(40_000)]
    assert sum(found) / len(found) == pytest.approx(share, rel=0.2)


def test_it_is_the_slowest_that_are_slow() -> None:
    draw = random.Random(5)
    slowness = Slowness(0.01)
    took = [int(draw.lognormvariate(0, 1) * 1e8) for _ in range(40_000)]
    found = [each for each in took if slowness.slow("chat", True, each)]
    # All of them are among the slowest few in a hundred.
    assert min(found[50:]) > sorted(took)[int(len(took) * 0.95)]


def test_it_follows_when_everything_is_slower() -> None:
    slowness = Slowness(0.01)
    draw = random.Random(7)
    for _ in range(5000):
        slowness.slow("chat", True, int(draw.uniform(0.9, 1.1) * 1e8))
    found = [slowness.slow("chat", True, int(draw.uniform(9, 11) * 1e8)) for _ in range(5000)]
    assert sum(found[:100]) > 10
    assert sum(found) < 150


def test_kinds_of_calls_have_their_own_measure() -> None:
    slowness = Slowness(0.01)
    for _ in range(1000):
        slowness.slow("embeddings", False, 10**6)
        slowness.slow("chat", True, 10**9)
    assert slowness.slow("embeddings", False, 10**8)
    assert not slowness.slow("chat", True, 10**8)


def test_none_where_none_is_wanted() -> None:
    slowness = Slowness(0.0)
    assert not any(slowness.slow("chat", True, number) for number in range(10_000))
