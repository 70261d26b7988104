"""Chat and text completions of a real vLLM through the gateway, with the official SDK; greedy, so that they repeat."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from tailrace.proxy.outcome import Ending

from real_vllm.scene import CHAT, HELLO, Clients, run, scene

ASKED: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 24, "temperature": 0}


async def text_of(clients: Clients, **more: Any) -> str:
    answer = await clients.openai.chat.completions.create(**ASKED, **more)
    return answer.choices[0].message.content


def test_a_whole_answer(engine):
    async def body():
        async with scene(engine) as s:
            answer = await s.openai.chat.completions.create(**ASKED)
            assert answer.choices[0].message.content == await text_of(s.direct)
            assert answer.choices[0].finish_reason == "length"
            assert answer.usage.completion_tokens == 24
            assert answer.usage.prompt_tokens > 5
            assert answer.model == "tiny"
            assert (await s.outcome()).ending is Ending.COMPLETED

    run(body())


def test_a_stream(engine):
    async def body():
        async with scene(engine) as s:
            usage = {"include_usage": True}
            stream = await s.openai.chat.completions.create(**ASKED, stream=True, stream_options=usage)
            chunks = [chunk async for chunk in stream]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text == await text_of(s.direct)
            assert len(chunks) > 10
            assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
            assert chunks[-1].choices == []
            assert chunks[-1].usage.completion_tokens == 24
            assert (await s.outcome()).ending is Ending.COMPLETED

    run(body())


def test_a_stream_comes_as_the_engine_sent_it(engine):
    """The gateway adds no event and drops none: only ids and times differ from one answer to the next."""

    async def body():
        async with scene(engine) as s:
            asked = {**ASKED, "stream": True}
            front = await s.front.post(CHAT, asked)
            direct = await s.direct.post(CHAT, asked, {"authorization": f"Bearer {s.direct.openai.api_key}"})
            assert front.complete
            assert [stripped(event.data) for event in front.events] == [stripped(event.data) for event in direct.events]
            assert front.header("content-type") == direct.header("content-type")

    run(body())


def stripped(data: bytes) -> Any:
    if not data.startswith(b"{"):
        return data
    return {name: value for name, value in orjson.loads(data).items() if name not in ("id", "created")}


def test_many_streams_at_once(engine):
    async def one(clients: Clients, number: int) -> int:
        stream = await clients.openai.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": f"Count to {number}."}], max_tokens=40, stream=True
        )
        return sum([1 async for chunk in stream if chunk.choices and chunk.choices[0].delta.content])

    async def body():
        async with scene(engine) as s:
            counts = await asyncio.gather(*(one(s.front, number) for number in range(6)))
            assert min(counts) > 10
            assert {outcome.ending for outcome in await s.outcomes(6)} == {Ending.COMPLETED}

    run(body())


def test_two_choices(engine):
    async def body():
        async with scene(engine) as s:
            whole = await s.openai.chat.completions.create(**{**ASKED, "temperature": 1}, n=2, seed=3)
            assert [choice.index for choice in whole.choices] == [0, 1]
            stream = await s.openai.chat.completions.create(**{**ASKED, "temperature": 1}, n=2, seed=3, stream=True)
            ends = {}
            texts = {0: "", 1: ""}
            async for chunk in stream:
                for choice in chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
                    ends[choice.index] = choice.finish_reason or ends.get(choice.index)
            assert ends == {0: "length", 1: "length"}
            assert texts == {choice.index: choice.message.content for choice in whole.choices}

    run(body())


def test_logprobs_and_stop(engine):
    async def body():
        async with scene(engine) as s:
            answer = await s.openai.chat.completions.create(**ASKED, logprobs=True, top_logprobs=2)
            assert len(answer.choices[0].logprobs.content) == 24
            word = answer.choices[0].logprobs.content[8].token.strip()
            stopped = await s.openai.chat.completions.create(**ASKED, stop=[word])
            assert stopped.choices[0].finish_reason == "stop"

    run(body())


def test_completions_of_token_ids(engine):
    """The way to go on with an answer elsewhere: prompt and output as token ids continue exactly."""

    async def body():
        async with scene(engine) as s:
            ids = (await s.front.post("/tokenize", {"model": "tiny", "prompt": "The river runs"})).json()["tokens"]
            asked = {"model": "tiny", "temperature": 0, "extra_body": {"return_token_ids": True}}
            whole = await s.openai.completions.create(prompt=ids, max_tokens=20, **asked)
            begun = whole.choices[0].model_extra["token_ids"][:8]
            rest = await s.openai.completions.create(prompt=[*ids, *begun], max_tokens=12, **asked)
            assert begun + rest.choices[0].model_extra["token_ids"] == whole.choices[0].model_extra["token_ids"]
            stream = await s.openai.completions.create(prompt=ids, max_tokens=20, stream=True, **asked)
            assert "".join([c.choices[0].text async for c in stream]) == whole.choices[0].text

    run(body())


def test_models_from_memory(engine):
    async def body():
        async with scene(engine) as s:
            assert {model.id async for model in await s.openai.models.list()} == {"tiny", "ghost"}
            assert (await s.openai.models.retrieve("tiny")).id == "tiny"

    run(body())
