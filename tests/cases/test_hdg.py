"""Retries and hedging, over sockets: who is asked how often, and what comes of the losers."""

from __future__ import annotations

import asyncio

import openai
import pytest
from fakes import (
    RawClient,
    Upstream,
    chat_answer,
    chat_chunk,
    gateway,
    json_answer,
    run,
    sse_answer,
    sse_head,
    stream_of,
    yaml_for,
)
from scrape import Scrape
from tailrace.proxy.outcome import Ending

from cases.scene import DONE, FINISH, PATH, ROLE, STREAM, framed, scene, until
from cases.scripts import CANCELLED, FAILED, WELL, WON, silent

IN_ORDER = "cases.policies:InOrder, cases.witness:Witness"
RETRY = "{retry: {back_off: 0}}"
HEDGE = "{hedge: {unknown: 50ms, extra: 1, unary: true, floor_ms: 1}}"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
QUICK = sse_answer(stream_of(["quick"]))


def refusing(status: int, message: str, pause: float = 0.0, headers: bytes = b""):
    async def script(conn, request):
        await asyncio.sleep(pause)
        await conn.send(json_answer({"error": {"message": message}}, status, headers))

    return script


async def reset(conn, request):
    conn.rst()


def test_HDG_01_the_loser_is_closed_promptly():
    async def body():
        async def quick(conn, request):
            """Begins, and goes on once the other one has been let go of."""
            await conn.send(sse_head() + framed([ROLE, chat_chunk("quick")]))
            await until(lambda: s.upstreams[0].closed_at, "the slow worker's connection stayed open")
            await conn.send(framed([FINISH, DONE, b""]))

        async with scene(silent, quick, workers=2, plugins=f"[{HEDGE}, {IN_ORDER}]") as s:
            assert b"quick" in (await s.ask()).body
            await s.outcome()
            assert sorted(s.witness.ends) == [CANCELLED, WON]
            assert [attempt.why for attempt in s.witness.calls[0].tries] == ["first", "hedge"]
            scraped = Scrape(s.process)
            assert scraped.value("hedge_fired_total") == scraped.value("hedge_won_total") == 1
            assert scraped.value("attempts_total", why="hedge", outcome="won") == 1
            assert scraped.value("attempts_total", why="first", outcome="cancelled") == 1

    run(body())


def test_HDG_05_three_attempts_for_each_of_the_clients():
    async def body():
        async with Upstream(refusing(503, "no")) as one, Upstream(refusing(503, "no")) as two:
            plugins = f"[{RETRY}, cases.witness:Witness]"
            async with gateway(yaml_for(one, two, plugins=plugins)) as process:
                async with openai.AsyncOpenAI(
                    api_key="k", base_url=f"{process.doors[0].shown}/v1", max_retries=2
                ) as client:
                    with pytest.raises(openai.InternalServerError):
                        await client.chat.completions.create(**CHAT)
                witness = process.service.chain.pipeline.links[1].plugin
                await until(lambda: len(witness.outcomes) == 3, "the ends of the client's three attempts")
                assert len(one.requests) + len(two.requests) == 9
                told = [request.header("x-tailrace-attempt") for request in (*one.requests, *two.requests)]
                assert sorted(each or "1" for each in told) == ["1"] * 3 + ["2"] * 3 + ["3"] * 3

    run(body())


def test_HDG_05_hops_do_not_multiply():
    """A gateway behind another: what it has tried is not tried again, and counts for what is."""

    async def body():
        async with Upstream(refusing(503, "no")) as engine:
            inner_yaml = yaml_for(engine, plugins=f"[{RETRY}]").replace(
                "listen: [127.0.0.1:0]", "listen: [{address: 127.0.0.1:0, trusted_proxies: [127.0.0.0/8]}]"
            )
            async with gateway(inner_yaml) as inner:
                outer_yaml = yaml_for(inner.doors[0].shown, plugins=f"[{RETRY}]")
                async with gateway(outer_yaml) as outer, Upstream(WELL):
                    async with RawClient(outer.doors[0].shown) as client:
                        answer = await client.post(PATH, CHAT)
                    assert answer.status == 503
                    assert len(engine.requests) == 3

    run(body())


def test_HDG_05_a_budget_bounds_retries():
    async def body():
        plugins = "[{retry: {back_off: 0, budget: {share: 0.2, per_second: 0}}}, cases.witness:Witness]"
        async with scene(refusing(500, "no"), plugins=plugins) as s:
            for _ in range(50):
                assert (await s.ask(CHAT)).status == 500
            assert len(s.upstream.requests) == 60
            assert Scrape(s.process).value("retry_refused_total", why="retry") == 50

    run(body())


def test_HDG_06_what_is_wrong_with_the_request_is_told():
    async def body():
        first, second = refusing(500, "broken", 0.3), refusing(400, "wrong", 0.1)
        async with scene(first, second, workers=2, plugins=f"[{HEDGE}, {IN_ORDER}]") as s:
            answer = await s.ask(CHAT)
            assert (answer.status, answer.json()["error"]["message"]) == (400, "wrong")
            await s.outcome()
            assert s.witness.ends == [FAILED, FAILED]
            scraped = Scrape(s.process)
            assert scraped.value("hedge_fired_total") == 1
            assert scraped.value("hedge_won_total") == 0
            assert scraped.value("attempts_total", outcome="failed") == 1
            assert scraped.value("attempts_total", outcome="refused") == 1

    run(body())


def test_HDG_06_a_hint_when_to_come_again_is_told():
    async def body():
        second = refusing(429, "later", headers=b"retry-after: 7\r\n")
        plugins = f"[{{retry: {{back_off: 0, attempts: 2}}}}, {IN_ORDER}]"
        async with scene(reset, second, workers=2, plugins=plugins) as s:
            answer = await s.ask(CHAT)
            assert (answer.status, answer.header("retry-after")) == (429, "7")
            await s.outcome()
            assert s.witness.ends == [FAILED, FAILED]

    run(body())


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_HDG_07_client_leaves_while_two_attempts_run(how):
    async def body():
        async with scene(silent, silent, workers=2, plugins=f"[{HEDGE}, {IN_ORDER}]") as s:
            client = await s.begin()
            await s.upstreams[1].asked()
            await client.close() if how == "fin" else client.rst()
            # Neither worker says anything, and no limit passes as soon: nothing else ends the attempts.
            await until(lambda: all(upstream.closed_at for upstream in s.upstreams), "a connection stayed open")
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            assert s.witness.ends == [CANCELLED, CANCELLED]

    run(body())


def test_HDG_07_client_leaves_during_a_back_off():
    async def body():
        plugins = f"[{{retry: {{back_off: 300ms}}}}, {IN_ORDER}]"
        async with scene(reset, WELL, workers=2, plugins=plugins) as s:
            client = await s.begin()
            await until(lambda: s.witness.ends, "the first attempt's end")
            await client.close()
            await s.outcome()
            await asyncio.sleep(0.4)
            assert s.witness.ends == [FAILED]
            assert s.upstreams[1].requests == []

    run(body())


def test_TMO_08_the_retry_plugin_moves_slow_failures_where_configured():
    for slow, status, asked in ((False, 504, [1, 0]), (True, 200, [1, 1])):

        async def body(slow=slow, status=status, asked=asked):
            plugins = f"[{{retry: {{back_off: 0, slow: {str(slow).lower()}}}}}, {IN_ORDER}]"
            more = "timeouts: {first_content_base: 0.3, first_content_per_mib: 0}"
            async with scene(silent, QUICK, workers=2, plugins=plugins, more=more) as s:
                big = {**STREAM, "messages": [{"role": "user", "content": "x" * 1_000_000}]}
                client = await s.begin(big)
                if slow:
                    await s.upstreams[1].asked()
                    assert s.upstreams[0].closed_at
                assert (await client.read_answer()).status == status
                assert [len(upstream.requests) for upstream in s.upstreams] == asked

        run(body())


def test_TMO_08_first_token_timeout_moves_by_what_is_usual():
    async def body():
        answers = [QUICK] * 5
        first = [silent]

        async def later(conn, request):
            await conn.send(answers.pop() if answers else QUICK)

        async def script(conn, request):
            if len(s.upstreams[0].requests) > 5 and first:
                first.pop()
                await silent(conn, request)
            else:
                await later(conn, request)

        plugins = (
            "[{hedge: {race: false, samples: 5, first_token_timeout: {times: 2, at_least: 200ms}}}, " + IN_ORDER + "]"
        )
        async with scene(script, QUICK, workers=2, plugins=plugins) as s:
            for _ in range(5):
                await s.ask()
            hedge = s.process.service.chain.pipeline.links[0].plugin
            hedge._latencies._due = s.process.service.clock.now
            answer = await s.ask()
            assert b"quick" in answer.body
            await s.outcome(6)
            assert s.witness.attempts[-1].why == "retry"
            assert s.upstreams[0].closed_at
            assert Scrape(s.process).value("hedge_moved_total") == 1

    run(body())


def test_json_answers_may_be_hedged_where_that_is_asked_for():
    async def body():
        async with scene(silent, json_answer(chat_answer("second")), workers=2, plugins=f"[{HEDGE}, {IN_ORDER}]") as s:
            answer = await s.ask(CHAT)
            assert answer.json()["choices"][0]["message"]["content"] == "second"
            await s.outcome()

    run(body())
