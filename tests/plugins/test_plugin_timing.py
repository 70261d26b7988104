"""What the `timing` plugin says on answers, and at the end of streams whose clients ask."""

from __future__ import annotations

import asyncio
import re

import orjson
import pytest
from fakes import (
    CHAT,
    GOOD,
    PATH,
    Answer,
    RawClient,
    Upstream,
    capture,
    chat_chunk,
    event,
    gateway,
    json_answer,
    run,
    sse_answer,
    stream_of,
    yaml_for,
)
from tailrace.plugins.timing import Timing
from tailrace.proxy.testing import plugin_bench

STREAM = {**CHAT, "stream": True}
ON = {"x-tailrace-timing": "on"}


def asked(answer: object, body: dict, headers: dict[str, str] | None = None, **more) -> Answer:
    async def main():
        async with plugin_bench(Timing, answer=answer, **more) as bench:
            return await bench.post(more.get("path", PATH), body, headers)

    return run(main())


def times(value: str | bytes | None) -> dict[str, float]:
    """A Server-Timing value as names and milliseconds; whatever else is in it is an error."""
    assert value
    text = value if isinstance(value, str) else value.decode()
    parts = [re.fullmatch(r"([a-z_]+);dur=(\d+\.\d{3})", part) for part in text.split(", ")]
    assert all(parts)
    return {part[1]: float(part[2]) for part in parts if part}


def test_every_answer_says_where_its_time_went():
    async def slow(conn, request):
        await asyncio.sleep(0.03)
        await conn.send(GOOD)

    told = times(asked(slow, CHAT).header("server-timing"))
    assert told["prefill"] >= 29  # timers count whole milliseconds
    assert told["total"] == pytest.approx(sum(told.values()) - told["total"], abs=1)


@pytest.mark.parametrize(("path", "status"), [("/v1/models", 200), ("/v1/nothing", 404)])
def test_what_no_worker_answers_too(path: str, status: int):
    async def main():
        async with plugin_bench(Timing, answer=GOOD) as bench:
            return await bench.get(path)

    answer = run(main())
    assert answer.status == status
    assert set(times(answer.header("server-timing"))) == {"gateway", "total"}


def test_what_a_worker_says_of_itself_is_replaced():
    answer = asked(GOOD.replace(b"\r\n", b"\r\nserver-timing: db;dur=5\r\n", 1), CHAT)
    values = [line for line in answer.head.raw.split(b"\r\n") if line.lower().startswith(b"server-timing")]
    assert len(values) == 1
    assert b"db" not in values[0]


def test_an_engines_own_figures():
    told = times(asked(json_answer(orjson.loads(capture("unary.json"))), CHAT).header("server-timing"))
    # The worker of this test answers at once: what its engine says counts as far as there was time for it.
    assert told["decode"] > 0
    assert told["total"] == pytest.approx(sum(told.values()) - told["total"], abs=1)


def comments(answer: Answer) -> list[bytes]:
    return [line for line in answer.body.split(b"\n") if line.startswith(b": server-timing ")]


@pytest.mark.parametrize("feed", ["whole", "split", "joined", "bytes"])
def test_a_client_that_asks_has_it_before_the_last_event(feed: str):
    answer = asked(stream_of(["a", "b"]), STREAM, ON, feed=feed)
    assert answer.complete
    [comment] = comments(answer)
    told = times(comment.removeprefix(b": server-timing "))
    assert {"gateway", "prefill", "decode", "total"} <= set(told)
    assert answer.body.endswith(comment + b"\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize(("headers", "body"), [(None, STREAM), ({"x-tailrace-timing": "off"}, STREAM), (ON, CHAT)])
def test_nobody_else_has(headers: dict[str, str] | None, body: dict):
    answer = asked(stream_of(["a"]) if body is STREAM else GOOD, body, headers)
    assert answer.status == 200
    assert comments(answer) == []


def test_it_can_be_switched_off():
    answer = asked(stream_of(["a"]), STREAM, ON, config={"header": False, "comment": "never"})
    assert answer.header("server-timing") is None
    assert comments(answer) == []


def test_a_stream_that_breaks_off_says_nothing_at_its_end():
    answer = asked([chat_chunk("a")], STREAM, ON)
    assert not answer.complete
    assert comments(answer) == []


def test_what_an_engine_says_in_a_stream_counts():
    usage = event(
        {"choices": [], "usage": None, "metrics": {"generation_time_ms": 1.0, "queue_time_ms": 3.5, "mean_itl_ms": 1}}
    )
    *first, done = stream_of(["a", "b"])

    async def slow(conn, request):
        await asyncio.sleep(0.02)
        await conn.send(sse_answer([*first, usage, done]))

    [comment] = comments(asked(slow, STREAM, ON))
    assert times(comment.removeprefix(b": server-timing "))["queue"] == 3.5


def test_sdks_pass_over_it():
    openai = pytest.importorskip("openai")

    async def main():
        async with Upstream(sse_answer(stream_of(["hel", "lo"]))) as upstream:
            async with gateway(yaml_for(upstream, plugins="[timing]")) as process:
                url = f"{process.doors[0].shown}/v1"
                async with openai.AsyncOpenAI(base_url=url, api_key="x", default_headers=ON, max_retries=0) as client:
                    stream = await client.chat.completions.create(**CHAT, stream=True)
                    return "".join([part.choices[0].delta.content or "" async for part in stream if part.choices])

    assert run(main()) == "hello"


def test_nothing_is_looked_through_for_others():
    async def main():
        async with Upstream(sse_answer(stream_of(["a"]))) as upstream:
            async with gateway(yaml_for(upstream, plugins="[cases.witness:Witness, timing]")) as process:
                async with RawClient(process.doors[0].shown) as client:
                    await client.post(PATH, STREAM)
                witness = process.service.chain.pipeline.links[0].plugin
                return witness.calls[0].taps

    assert run(main()) is None
