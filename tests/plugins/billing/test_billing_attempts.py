"""What calls cost whose answers took more than one attempt, or did not come whole."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from billed import billed, cost, stream, unary, unasked
from fakes import CHAT, PATH, Upstream, answer, event, json_answer, run, sse_answer, sse_head
from tailrace.proxy.testing.answers import chunked

STREAM = {**CHAT, "stream": True}
IN_ORDER = "- 'cases.policies:InOrder'\n"
HEDGE = "- 'cases.policies:Hedge': {seconds: 0.05}\n"
MOVE_ON = "- 'cases.policies:MoveOn'\n"


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
@pytest.mark.parametrize("streams", [True, False])
def test_refusals_of_an_engine_cost_nothing(tmp_path: Path, status: int, streams: bool) -> None:
    said = {"error": {"message": "no"}, "usage": {"prompt_tokens": 5, "completion_tokens": 5}}

    async def main() -> None:
        async with billed(tmp_path, json_answer(said, status)) as scene:
            got = await scene.client.post(PATH, {**CHAT, "stream": streams})
            assert got.status == status
            record = await scene.record()
            assert (record.amount, record.requests, record.prompt, record.completion) == (0, 0, 0, 0)
            assert record.status == status
            # One that was turned away at the door was no work; of any other nobody knows.
            assert bool(record.lost_amount) == (status >= 500)

    run(main())


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_leaves_before_anything_came_pays_nothing(tmp_path: Path, streams: bool) -> None:
    async def silent(conn, request):
        await conn.wait_closed()

    async def main() -> None:
        async with billed(tmp_path, silent) as scene:
            await scene.client.request("POST", PATH, orjson.dumps({**CHAT, "stream": streams}))
            await scene.upstream.asked()
            await scene.client.close()
            record = await scene.record()
            assert (record.amount, record.requests, record.ending) == (0, 0, "client_gone")
            assert record.lost_prompt > 0
            assert record.lost_amount == cost(record.lost_prompt, 0, requests=0)

    run(main())


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("how", ["fin", "rst", "error"])
def test_a_stream_that_its_worker_breaks_off_costs_what_was_sent(tmp_path: Path, how: str, running: bool) -> None:
    events = stream(30, running=running)

    async def script(conn, request):
        await conn.send(sse_head())
        for each in events[:13]:
            await conn.send(chunked(each))
        await asyncio.sleep(0.02)
        if how == "error":
            await conn.send(chunked(event({"error": {"message": "boom", "code": 500}})) + chunked(event("[DONE]")))
        elif how == "rst":
            conn.rst()
        else:
            conn.close()

    async def main() -> None:
        async with billed(tmp_path, script) as scene:
            got = await scene.client.post(PATH, STREAM)
            assert not got.complete
            record = await scene.record()
            assert (record.ending, record.completion, record.requests) == ("upstream_lost", 12, 1)
            assert record.amount == cost(record.prompt, 12)
            assert (record.estimated, record.lost_amount) == (not running, 0)

    run(main())


def test_a_reader_that_lags_behind_pays_for_what_the_kernel_took(tmp_path: Path) -> None:
    """What waits in the gateway when it leaves was made in vain."""
    pad = "x" * 2000
    events = [
        event({**orjson.loads(each[6:]), "pad": pad}) if each.startswith(b"data: {") else each for each in stream(3000)
    ]
    sizes = [len(chunked(each)) for each in (unasked([each]) for each in events) if each]

    async def script(conn, request):
        await conn.send(sse_head())
        for each in events:
            await conn.send(chunked(each))

    async def main() -> None:
        async with billed(tmp_path, script) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(STREAM))
            await scene.client.read_until(b"t20 ")
            connection = next(iter(scene.process.service.connections))
            while not connection.paused:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            waiting = connection.transport.get_write_buffer_size()
            written = connection.sent + connection.relay.passed
            scene.client.rst()
            record = await scene.record()
            assert waiting > 10_000
            # So many events the kernel had taken whole.
            taken, count = 0, 0
            for size in sizes:
                if taken + size > written - waiting:
                    break
                taken += size
                count += 1
            assert record.ending == "client_gone"
            assert 20 < record.completion <= count
            assert record.completion >= count - 40  # a read of the kernel's
            assert record.lost_completion > 0

    run(main())


def test_a_request_that_was_never_read_is_sent_again_and_charged_once(tmp_path: Path) -> None:
    async def main() -> None:
        gone = Upstream(unary(1, 1))
        async with gone:
            dead = gone.url
        models = f"{{m: {{workers: ['{dead}', W0]}}}}"
        async with billed(tmp_path, unary(9, 3), models=models, before=IN_ORDER) as scene:
            assert (await scene.client.post(PATH, CHAT)).status == 200
            record = await scene.record()
            assert (record.amount, record.requests, record.lost_amount) == (cost(9, 3), 1, 0)

    run(main())


def test_a_second_attempt_after_a_lost_connection_is_charged_once(tmp_path: Path) -> None:
    """What the first worker did with it nobody paid for."""

    async def dies(conn, request):
        await conn.send(sse_head())
        conn.close()

    async def main() -> None:
        async with billed(tmp_path, dies, sse_answer(stream(5)), before=IN_ORDER + MOVE_ON) as scene:
            assert (await scene.client.post(PATH, STREAM)).complete
            record = await scene.record()
            assert (record.amount, record.requests) == (cost(9, 5), 1)
            assert (record.lost_prompt, record.lost_amount) == (9, cost(9, 0, requests=0))

    run(main())


@pytest.mark.parametrize("streams", [True, False])
def test_of_two_attempts_at_once_the_one_that_is_shown_is_charged(tmp_path: Path, streams: bool) -> None:
    async def slow(conn, request):
        await conn.wait_closed()

    async def main() -> None:
        quick = sse_answer(stream(5)) if streams else unary(9, 5)
        async with billed(tmp_path, slow, quick, before=IN_ORDER + HEDGE) as scene:
            assert (await scene.client.post(PATH, {**CHAT, "stream": streams})).status == 200
            assert [len(upstream.requests) for upstream in scene.upstreams] == [1, 1]
            record = await scene.record()
            assert (record.amount, record.requests, record.estimated) == (cost(9, 5), 1, False)
            made = 0 if streams else 5
            assert (record.lost_prompt, record.lost_amount) == (9, cost(9, made, requests=0))

    run(main())


def test_a_hedge_of_which_nobody_answers_is_lost_twice(tmp_path: Path) -> None:
    async def slow(conn, request):
        await conn.wait_closed()

    async def main() -> None:
        async with billed(tmp_path, slow, slow, before=IN_ORDER + HEDGE) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(STREAM))
            await scene.upstreams[1].asked()
            await scene.client.close()
            record = await scene.record()
            assert (record.amount, record.requests) == (0, 0)
            guess = round(len(orjson.dumps(STREAM)) / 4)
            assert record.lost_prompt == 2 * guess

    run(main())


def test_each_call_on_a_connection_is_one_record(tmp_path: Path) -> None:
    scripts: list[Any] = [unary(9, 3), sse_answer(stream(4)), answer(429, b'{"error":{"message":"wait"}}')] * 5

    async def main() -> None:
        async with billed(tmp_path, scripts) as scene:
            for number in range(15):
                await scene.client.post(PATH, STREAM if number % 3 == 1 else CHAT)
            found = await scene.records(15)
            assert len({record.charge_key for record in found}) == len({record.call for record in found}) == 15
            assert sum(record.amount for record in found) == 5 * (cost(9, 3) + cost(9, 4))

    run(main())
