"""What hedges, retries and fallbacks come to in the ledger: the client pays once, for what it was sent."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from billed import billed, cost, stream, unary, usage
from fakes import CHAT, PATH, answer, run, sse_answer, until

STREAM = {**CHAT, "stream": True}
RACE = (
    "- cases.policies:InOrder\n- hedge: {unknown: 50ms, extra: 1, unary: true, floor_ms: 1}\n- retry: {back_off: 0}\n"
)
PRICES = """
currency: EUR
version: p1
prices:
  - {model: m, prompt: 2, cached_prompt: 0.5, completion: 8, per_request: 0.001}
  - {model: small, prompt: 1, completion: 3}
"""
QUICK = sse_answer(stream(4))


async def silent(conn, request):
    await conn.wait_closed()


async def slow_prompt(conn, request):
    """Takes its time for the prompt: it has not begun to answer when another has."""
    await conn.wait_closed()


def test_HDG_01_the_loser_is_our_cost_and_the_client_pays_once(tmp_path):
    async def body():
        async with billed(tmp_path, slow_prompt, QUICK, behind=RACE) as s:
            got = await s.client.post(PATH, STREAM)
            assert got.complete
            record = await s.record()
            assert (record.prompt, record.completion, record.amount) == (9, 4, cost(9, 4))
            assert (record.lost_prompt, record.lost_completion) == (9, 0), "the loser read the prompt as well"
            assert record.lost_amount == cost(9, 0, requests=0)
            assert record.requests == 1
            await until(lambda: s.upstreams[0].closed_at, "the loser's connection stayed open")

    run(body())


def test_HDG_01_the_loser_of_whole_answers_is_estimated(tmp_path):
    """It was at work for longer than the winner, so it may have made as much."""

    async def later(conn, request):
        await asyncio.sleep(0.1)
        await conn.send(unary(9, 40))

    async def body():
        async with billed(tmp_path, silent, later, behind=RACE) as s:
            assert (await s.client.post(PATH, CHAT)).status == 200
            record = await s.record()
            assert (record.prompt, record.completion, record.amount) == (9, 40, cost(9, 40))
            assert (record.lost_prompt, record.lost_completion) == (9, 40)

    run(body())


def test_HDG_01_a_loser_that_never_reached_its_engine_costs_nothing(tmp_path):
    async def body():
        async with billed(tmp_path, silent, QUICK, behind=RACE) as s:
            s.upstreams[0].refuse()
            assert (await s.client.post(PATH, STREAM)).complete
            record = await s.record()
            assert (record.amount, record.lost_amount) == (cost(9, 4), 0)

    run(body())


def test_HDG_01_both_fail_and_the_client_pays_nothing(tmp_path):
    async def broken(conn, request):
        await asyncio.sleep(0.1)
        await conn.send(answer(500, b'{"error": {"message": "broken"}}'))

    async def body():
        async with billed(tmp_path, broken, broken, behind=RACE) as s:
            assert (await s.client.post(PATH, STREAM)).status == 500
            record = await s.record()
            assert (record.amount, record.requests, record.completion) == (0, 0, 0)
            assert record.lost_prompt > 0

    run(body())


@pytest.mark.parametrize("streams", [True, False])
def test_a_fallback_is_billed_as_the_model_that_served(tmp_path, streams):
    async def broken(conn, request):
        await conn.send(answer(500, b'{"error": {"message": "broken"}}'))

    async def body():
        served = sse_answer(stream(4)) if streams else unary(9, 4)
        behind = "- fallback: {to: [{model: small}]}\n"
        models = "{m: {workers: [W0]}, small: {workers: [W1]}}"
        async with billed(tmp_path, broken, served, prices=PRICES, behind=behind, models=models) as s:
            got = await s.client.post(PATH, STREAM if streams else CHAT)
            assert got.header("x-tailrace-fallback") == "model=small"
            record = await s.record()
            assert (record.model, record.deployment) == ("m", "small")
            assert (record.prompt, record.completion, record.amount) == (9, 4, 1000 * 9 + 3000 * 4)
            assert orjson.loads(s.upstreams[1].requests[0].body)["model"] == "small"

    run(body())


def test_a_fallback_to_a_model_without_a_price_is_not_taken(tmp_path):
    async def broken(conn, request):
        await conn.send(answer(500, b'{"error": {"message": "broken"}}'))

    async def body():
        behind = "- fallback: {to: [{model: small}]}\n"
        models = "{m: {workers: [W0]}, small: {workers: [W1]}}"
        async with billed(tmp_path, broken, unary(9, 4), behind=behind, models=models) as s:
            assert (await s.client.post(PATH, CHAT)).status == 500
            assert s.upstreams[1].requests == []
            assert (await s.record()).amount == 0

    run(body())


def test_a_budget_counts_what_the_fallback_costs(tmp_path):
    """A free model with a paid fallback does not spend without limit."""

    async def broken(conn, request):
        await conn.send(answer(500, b'{"error": {"message": "broken"}}'))

    prices = PRICES.replace(
        "prompt: 2, cached_prompt: 0.5, completion: 8, per_request: 0.001", "prompt: 0, completion: 0"
    )

    async def body():
        limit = "{money: '0.00005', per: day, of: model}"
        behind = f"- quota: {{limits: [{limit}]}}\n- fallback: {{to: [{{model: small}}]}}\n"
        models = "{m: {workers: [W0]}, small: {workers: [W1]}}"
        async with billed(tmp_path, broken, unary(9, 4), prices=prices, behind=behind, models=models) as s:
            answers = [(await s.client.post(PATH, {**CHAT, "max_tokens": 4})).status for _ in range(6)]
            assert answers[0] == 200
            assert answers[-1] == 429
            assert len(s.upstreams[1].requests) < 6

    run(body())


def test_a_degraded_message_costs_nothing(tmp_path):
    async def broken(conn, request):
        await conn.send(answer(500, b'{"error": {"message": "broken"}}'))

    async def body():
        behind = "- fallback: {to: [{message: sorry}]}\n"
        async with billed(tmp_path, broken, behind=behind) as s:
            got = await s.client.post(PATH, CHAT)
            assert got.json()["choices"][0]["message"]["content"] == "sorry"
            assert got.json()["usage"] == {**usage(0, 0)}
            record = await s.record()
            assert record.amount == 0

    run(body())
