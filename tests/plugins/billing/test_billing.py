"""What calls cost: the record of each, opened before a worker is asked, settled before the answer ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from billed import billed, cost, stream, unary, unasked
from fakes import CHAT, PATH, run, sse_answer, sse_head
from tailrace.proxy.testing.answers import chunked

STREAM = {**CHAT, "stream": True}


def test_a_whole_answer_costs_what_its_engine_says(tmp_path: Path) -> None:
    async def main() -> None:
        async with billed(tmp_path, unary(100, 20, 64)) as scene:
            got = await scene.client.post(PATH, CHAT)
            assert got.status == 200
            record = await scene.record()
            assert (record.prompt, record.completion, record.cached, record.requests) == (100, 20, 64, 1)
            assert (record.amount, record.currency, record.price_version) == (cost(100, 20, 64), "EUR", "p1")
            assert (record.ending, record.status, record.estimated, record.unpriced) == ("completed", 200, False, False)
            assert (record.model, record.deployment, record.echoed_model, record.route) == ("m", "m", "m", "chat")
            assert (record.lost_prompt, record.lost_completion, record.lost_amount) == (0, 0, 0)

    run(main())


@pytest.mark.parametrize("running", [True, False])
def test_a_stream_costs_what_its_last_usage_says(tmp_path: Path, running: bool) -> None:
    events = stream(30, 9, 4, running=running)

    async def main() -> None:
        async with billed(tmp_path, sse_answer(events)) as scene:
            got = await scene.client.post(PATH, STREAM)
            assert got.body == unasked(events)
            asked = scene.upstream.requests[0].json()["stream_options"]
            assert asked == {"include_usage": True, "continuous_usage_stats": True}
            record = await scene.record()
            assert (record.prompt, record.completion, record.cached, record.estimated) == (9, 30, 4, False)
            assert record.amount == cost(9, 30, 4)

    run(main())


@pytest.mark.parametrize("at", range(1, 12))
def test_what_a_client_that_left_was_sent_is_billed(tmp_path: Path, at: int) -> None:
    """Within one event of what it got; what the engine made beyond it is on record as lost."""
    events = stream(40)

    async def main() -> None:
        go = asyncio.Event()

        async def script(conn, request):
            await conn.send(sse_head() + b"".join(map(chunked, events[: at + 1])))
            await go.wait()
            await conn.send(b"".join(map(chunked, events[at + 1 :])) + chunked(b""))

        async with billed(tmp_path, script) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(STREAM))
            await scene.client.read_until(b"t%d " % at)
            await scene.client.close()
            record = await scene.record()
            go.set()
            assert record.ending == "client_gone"
            assert record.prompt == 9
            assert at - 1 <= record.completion <= at
            assert record.amount == cost(9, record.completion)

    run(main())
