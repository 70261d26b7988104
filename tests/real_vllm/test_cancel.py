"""A client that leaves frees the engine: mid-stream, before the first token, from a queue, streaming or not."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any

import orjson
import pytest
from fakes import RawClient
from tailrace.proxy.outcome import Ending

from real_vllm.engines import SEATS
from real_vllm.scene import CHAT, HELLO, LONG, Scene, run, scene

PROMPTLY = 1.0
ASKED: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": LONG}


async def is_running(s: Scene, running: int, waiting: int = 0) -> None:
    async with asyncio.timeout(20):
        while await s.busy() != (running, waiting):
            await asyncio.sleep(0.02)


def test_mid_stream(engine):
    async def body():
        async with scene(engine) as s:
            stream = await s.openai.chat.completions.create(**ASKED, stream=True)
            await anext(events := aiter(stream))
            await is_running(s, 1)
            await anext(events)
            await stream.close()
            await s.idle_engine(within=PROMPTLY)
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.CLIENT_GONE, 499)

    run(body())


@pytest.mark.parametrize("dialect", ["messages", "responses", "completions"])
def test_mid_stream_of_the_other_apis(engine, dialect):
    async def open_stream(s: Scene) -> Any:
        if dialect == "messages":
            return await s.anthropic.messages.create(**ASKED, stream=True)
        if dialect == "responses":
            return await s.openai.responses.create(model="tiny", input="a", max_output_tokens=LONG, stream=True)
        return await s.openai.completions.create(model="tiny", prompt="a", max_tokens=LONG, stream=True)

    async def body():
        async with scene(engine) as s:
            stream = await open_stream(s)
            await anext(events := aiter(stream))
            await is_running(s, 1)
            await anext(events)
            await stream.close()
            await s.idle_engine(within=PROMPTLY)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE

    run(body())


def test_while_a_whole_answer_is_made(engine):
    async def body():
        async with scene(engine) as s:
            asking = asyncio.ensure_future(s.openai.chat.completions.create(**ASKED))
            await is_running(s, 1)
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            await s.idle_engine(within=PROMPTLY)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE

    run(body())


@pytest.mark.parametrize("stream", [False, True])
def test_during_prefill(engine, stream):
    """What computes is stopped for the moment, so that the client certainly leaves before the first token."""

    async def body():
        async with scene(engine) as s:
            engine.kill_core(signal.SIGSTOP)
            try:
                async with RawClient(s.front.url) as client:
                    await client.request("POST", CHAT, orjson.dumps({**ASKED, "stream": stream}))
                    await asyncio.sleep(0.3)
                assert (await s.outcome()).ending is Ending.CLIENT_GONE
                await s.at_rest()
            finally:
                engine.kill_core(signal.SIGCONT)
            await asyncio.sleep(0.1)
            await s.idle_engine(within=PROMPTLY)

    run(body())


def test_from_the_engines_queue(engine):
    async def body():
        async with scene(engine) as s:
            streams = [await s.openai.chat.completions.create(**ASKED, stream=True) for _ in range(SEATS)]
            for stream in streams:
                await anext(aiter(stream))
            asking = asyncio.ensure_future(s.openai.chat.completions.create(**ASKED, stream=True))
            await is_running(s, SEATS, 1)
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            await is_running(s, SEATS, 0)
            for stream in streams:
                await stream.close()
            await s.idle_engine(within=PROMPTLY)
            assert {outcome.ending for outcome in await s.outcomes(SEATS + 1)} == {Ending.CLIENT_GONE}

    run(body())
