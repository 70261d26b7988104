"""USE: whose figures count, and what calls cost that bring none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from billed import billed, cost, last_usage, stream, token, unary, unasked
from fakes import CHAT, PATH, answer, event, json_answer, run, sse_answer, sse_head, until
from scrape import Scrape
from tailrace.proxy.attempt import Attempt
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Fault
from tailrace.proxy.plugin import Plugin, Target
from tailrace.proxy.testing.answers import chunked

from cases.scene import STREAM

DONE = event("[DONE]")
PRICES = """
currency: EUR
version: p1
prices:
  - {model: gpt, prompt: 2, cached_prompt: 0.5, completion: 8, per_request: 0.001}
  - {model: vendor/second, prompt: 1, completion: 3}
"""


def test_USE_08_calls_that_use_no_tokens_cost_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with billed(tmp_path, unary(3, 2)) as scene:
            for _ in range(100):
                assert (await scene.client.get("/v1/models")).status == 200
            assert (await scene.client.get("/v1/models/m")).status == 200
            assert not scene.upstream.requests
            assert (await scene.client.post(PATH, CHAT)).status == 200
            record = await scene.record()  # of the last call, and of no other
            assert (record.route, record.amount) == ("chat", cost(3, 2))

    run(main())


@pytest.mark.parametrize("said", ["none", "null", "empty", "nonsense"])
@pytest.mark.parametrize("streams", [True, False])
def test_USE_08_without_figures_an_estimate_is_billed_and_marked(tmp_path: Path, said: str, streams: bool) -> None:
    usage: Any = {"none": 0, "null": None, "empty": {}, "nonsense": {"prompt_tokens": -3, "completion_tokens": "7"}}[
        said
    ]
    more = {} if said == "none" else {"usage": usage}
    text = "word " * 40
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    whole = json_answer({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], **more})
    events = [token(number, running=False, finish="stop" if number == 10 else None) for number in range(11)]
    if said != "none":
        events.append(event({"id": "c", "choices": [], **more}))
    asked = {**CHAT, "stream": streams, "messages": [{"role": "user", "content": "word " * 80}]}

    async def main() -> None:
        async with billed(tmp_path, sse_answer([*events, DONE]) if streams else whole) as scene:
            got = await scene.client.post(PATH, asked)
            assert (got.status, got.complete) == (200, True)
            record = await scene.record()
            assert record.estimated
            assert record.prompt == pytest.approx(len(orjson.dumps(asked)) / 4, abs=1)
            # Pieces of a stream count as tokens; of a whole answer, bytes by four.
            assert record.completion == 9 if streams else 50 < record.completion < 120
            assert record.amount == cost(record.prompt, record.completion) > cost(80, 9)
            await until(lambda: Scrape(scene.process).value("billing_estimated_records_total", model="m") == 1)

    run(main())


def test_USE_08_estimates_of_prompts_learn_from_what_engines_say(tmp_path: Path) -> None:
    async def script(conn, request):
        told = "tell" in request.body.decode()
        await conn.send(unary(50, 1) if told else json_answer({"choices": [{"message": {"content": "x"}}]}))

    async def main() -> None:
        async with billed(tmp_path, script) as scene:
            for text in ("tell", "hush"):
                await scene.client.post(PATH, {**CHAT, "messages": [{"role": "user", "content": text}]})
            told, guessed = await scene.records(2)
            assert (told.estimated, guessed.estimated) == (False, True)
            assert told.prompt == guessed.prompt == 50

    run(main())


@pytest.mark.parametrize("running", [True, False])
def test_USE_10_usage_of_several_choices_is_the_requests(tmp_path: Path, running: bool) -> None:
    """Choice 0 ends early, choice 2 last; the whole is not taken for over before that."""
    lengths = (3, 6, 9)
    events = []
    for number in range(max(lengths) + 1):
        for index, length in enumerate(lengths):
            if number <= length:
                finish = "stop" if number == length else None
                events.append(token(number, index=index, running=running, finish=finish))
    events += [last_usage(9, sum(lengths), 4), DONE]

    async def main() -> None:
        async with billed(tmp_path, sse_answer(events)) as scene:
            got = await scene.client.post(PATH, {**STREAM, "n": 3})
            assert (got.complete, got.body) == (True, unasked(events))
            record = await scene.record()
            assert (record.prompt, record.completion, record.cached) == (9, sum(lengths), 4)
            assert (record.amount, record.requests, record.estimated) == (cost(9, 18, 4), 1, False)

    run(main())


@pytest.mark.parametrize("running", [True, False])
def test_USE_10_an_abort_between_two_finishes_is_one(tmp_path: Path, running: bool) -> None:
    events = [
        *(token(number, index=index, running=running) for number in range(4) for index in range(3)),
        token(4, running=running, finish="stop"),
        *(token(number, index=index, running=running) for number in (4, 5) for index in (1, 2)),
    ]

    async def main() -> None:
        go = asyncio.Event()

        async def script(conn, request):
            await conn.send(sse_head())
            for each in events:
                await conn.send(chunked(each))
            await go.wait()

        async with billed(tmp_path, script) as scene:
            await scene.client.request("POST", PATH, orjson.dumps({**STREAM, "n": 3}))
            for _ in range(2):
                await scene.client.read_until(b"t5 ")
            await scene.client.close()
            record = await scene.record()
            go.set()
            assert record.ending == "client_gone"
            # Pieces count as tokens; the one with the reason cannot be told from one without text.
            assert (record.completion, record.estimated) == ((14, False) if running else (13, True))

    run(main())


EMBEDDED = {"prompt_tokens": 1200, "total_tokens": 1200}
READ = {
    "embeddings": (
        {"model": "m", "input": ["a text of some length, about twelve tokens long"] * 100},
        {"object": "list", "model": "m", "data": [{"index": 0, "embedding": [0.5] * 100}] * 100, "usage": EMBEDDED},
    ),
    "rerank": (
        {"model": "m", "query": "q", "documents": ["a text of some length, about twelve tokens long"] * 100},
        {"id": "r", "model": "m", "results": [{"index": 0, "relevance_score": 0.5}], "usage": {"total_tokens": 1200}},
    ),
}


@pytest.mark.parametrize("route", READ)
def test_USE_11_embeddings_and_rerankings_are_billed_and_count_against_limits(tmp_path: Path, route: str) -> None:
    asked, said = READ[route]
    quota = "- quota: {limits: [{tokens: 10000, per: day}], unknown: closed}\n"

    async def main() -> None:
        async with billed(tmp_path, json_answer(said), behind=quota) as scene:
            statuses = []
            while 429 not in statuses:
                statuses.append((await scene.client.post(f"/v1/{route}", asked)).status)
            assert set(statuses[:-1]) == {200}
            assert 3 <= len(statuses[:-1]) <= 8
            # What is left is enough for a single text, not for a hundred: these are all counted beforehand.
            one = {name: value[:1] if isinstance(value, list) else value for name, value in asked.items()}
            assert (await scene.client.post(f"/v1/{route}", one)).status == 200
            for record in await scene.records(len(statuses)):
                assert (record.prompt, record.completion, record.route) == (1200, 0, route)
                assert (record.amount, record.estimated) == (cost(1200, 0), False)

    run(main())


@pytest.mark.parametrize("echoed", ["third", None])
def test_USE_15_priced_by_the_model_that_was_resolved(tmp_path: Path, echoed: str | None) -> None:
    """Alias `gpt`, deployment `vendor/big`, and a third name in the answer, in an interrupted stream too."""
    events = [event({**orjson.loads(each[6:]), "model": echoed}) for each in stream(20)[:12]]

    async def main() -> None:
        go = asyncio.Event()

        async def script(conn, request):
            await conn.send(sse_head() + b"".join(map(chunked, events)))
            await go.wait()

        models = "{gpt: {workers: [ALL], as: vendor/big}}"
        async with billed(tmp_path, script, models=models, prices=PRICES) as scene:
            await scene.client.request("POST", PATH, orjson.dumps({**STREAM, "model": "gpt"}))
            await scene.client.read_until(b"t11 ")
            await scene.client.close()
            record = await scene.record()
            go.set()
            assert (record.model, record.deployment, record.echoed_model) == ("gpt", "vendor/big", echoed or "")
            assert (record.amount, record.completion, record.unpriced) == (cost(9, 11), 11, False)

    run(main())


def test_USE_15_a_model_without_a_price_is_never_a_silent_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        models = "{gpt: {workers: [ALL]}, other: {workers: [ALL]}}"
        async with billed(tmp_path, unary(9, 3), models=models, prices=PRICES) as scene:
            got = await scene.client.post(PATH, {**CHAT, "model": "other"})
            assert (got.status, got.json()["error"]["code"]) == (503, "model_unpriced")
            assert not scene.upstream.requests
            assert Scrape(scene.process).value("billing_unpriced_refused_total") == 1
        (tmp_path / "free").mkdir()
        async with billed(
            tmp_path / "free", unary(9, 3), models=models, prices=PRICES, more=", unpriced: free"
        ) as scene:
            assert (await scene.client.post(PATH, {**CHAT, "model": "other"})).status == 200
            record = await scene.record()
            assert (record.amount, record.unpriced, record.prompt, record.completion) == (0, True, 9, 3)

    run(main())


@dataclass(frozen=True)
class Config:
    pass


class FallBack(Plugin[Config]):
    """After a fault, another model."""

    Config = Config

    def next_target(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> Target | None:
        return Target(model="second")


@pytest.mark.parametrize("streams", [True, False])
def test_USE_17_the_fallback_is_who_is_named_and_priced(tmp_path: Path, streams: bool) -> None:
    of_first = b"x-request-id: first-1\r\nopenai-processing-ms: 1\r\n"
    failed = answer(
        500, b'{"error":{"message":"no"},"usage":{"prompt_tokens":7,"completion_tokens":7}}', headers=of_first
    )
    headers = b"x-request-id: second-2\r\nopenai-processing-ms: 2\r\n"
    said = {**orjson.loads(unary(9, 3).partition(b"\r\n\r\n")[2]), "model": "second-echo"}
    well = sse_answer(stream(3), headers) if streams else json_answer(said, headers=headers)
    models = "{gpt: {workers: [W0], as: vendor/big}, second: {workers: [W1], as: vendor/second}}"

    async def main() -> None:
        before = "- 'cases.test_use_figures:FallBack'\n"
        async with billed(tmp_path, failed, well, models=models, prices=PRICES, before=before) as scene:
            got = await scene.client.post(PATH, {**CHAT, "model": "gpt", "stream": streams})
            assert (got.status, got.header("x-upstream-request-id")) == (200, "second-2")
            assert got.head.all("openai-processing-ms") in (["2"], [])
            assert scene.upstreams[1].requests[0].json()["model"] == "vendor/second"
            record = await scene.record()
            assert (record.model, record.deployment) == ("gpt", "vendor/second")
            assert record.echoed_model == ("m" if streams else "second-echo")
            assert (record.prompt, record.completion, record.requests) == (9, 3, 1)
            assert record.amount == 9 * 1000 + 3 * 3000
            assert record.lost_prompt == 9  # what the first may have read

    run(main())


def test_USE_17_a_fallback_without_a_price_is_not_gone_to(tmp_path: Path) -> None:
    models = "{gpt: {workers: [W0]}, second: {workers: [W1]}}"

    async def main() -> None:
        failed = answer(500, b'{"error":{"message":"no"}}')
        before = "- 'cases.test_use_figures:FallBack'\n"
        async with billed(tmp_path, failed, unary(9, 3), models=models, prices=PRICES, before=before) as scene:
            got = await scene.client.post(PATH, {**CHAT, "model": "gpt"})
            assert (got.status, got.json()["error"]["message"]) == (500, "no")
            assert not scene.upstreams[1].requests
            record = await scene.record()
            assert (record.amount, record.requests, record.deployment) == (0, 0, "gpt")

    run(main())
