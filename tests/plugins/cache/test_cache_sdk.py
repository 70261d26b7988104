"""The official SDKs take hits, followers and misses alike, as streams and whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest
from fakes import chat_chunk, event, run, sse_answer
from tailrace.plugins.cache import Cache
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import Bench

TEXT = "Grüße aus Köln: it is sunny, and warm for the season. " * 3
CALL = {"index": 0, "id": "t1", "type": "function", "function": {"name": "weather", "arguments": ""}}
CHAT = [
    chat_chunk("", role="assistant"),
    *[chat_chunk(TEXT[at : at + 9]) for at in range(0, len(TEXT), 9)],
    chat_chunk(tool_calls=[CALL]),
    chat_chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"city":"Köln"}'}}]),
    chat_chunk(finish="tool_calls"),
    event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
           "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}),
    event("[DONE]"),
]  # fmt: skip
HEAD = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": []}
MESSAGES = [
    {"type": "message_start", "message": {**HEAD, "stop_reason": None, "stop_sequence": None,
     "usage": {"input_tokens": 3, "output_tokens": 0}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    *[{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT[at : at + 9]}}
      for at in range(0, len(TEXT), 9)],
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1,
     "content_block": {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}},
    {"type": "content_block_delta", "index": 1,
     "delta": {"type": "input_json_delta", "partial_json": '{"city":"Köln"}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
     "usage": {"input_tokens": 3, "output_tokens": 2}},
    {"type": "message_stop"},
]  # fmt: skip


class Gate:
    """A worker that waits until it is let go, once."""

    def __init__(self, events: list[bytes]) -> None:
        self.open = asyncio.Event()
        self._answer = sse_answer(events)

    async def __call__(self, conn: Any, request: Any) -> None:
        await self.open.wait()
        await conn.send(self._answer)


@asynccontextmanager
async def cached(events: list[bytes]) -> AsyncIterator[tuple[Bench, Gate]]:
    gate = Gate(events)
    async with plugin_bench(Cache, {}, answer=gate) as bench:
        yield bench, gate


async def three_ways(bench: Bench, gate: Gate, ask: Any) -> list[Any]:
    """A miss, one who follows it, and a hit."""
    leads = asyncio.ensure_future(ask())
    await bench.upstream.asked()
    follows = asyncio.ensure_future(ask())
    while bench.process.service.active < 2:
        await asyncio.sleep(0.002)
    gate.open.set()
    answers = [await leads, await follows, await ask()]
    plugin: Any = bench.plugin
    assert plugin._told == {b"miss": 1, b"follow": 1, b"hit": 1}
    assert len(bench.upstream.requests) == 1
    return answers


def checked(message: Any) -> None:
    assert message.content == TEXT
    (call,) = message.tool_calls
    assert (call.id, call.function.name, call.function.arguments) == ("t1", "weather", '{"city":"Köln"}')


@pytest.mark.parametrize("metered", [False, True])
def test_openai_streams(metered: bool) -> None:
    async def main() -> None:
        async with cached(CHAT) as (bench, gate):
            client = openai.AsyncOpenAI(base_url=bench.url + "/v1", api_key="x", max_retries=0)
            more: dict[str, Any] = {"stream_options": {"include_usage": True}} if metered else {}

            async def ask() -> Any:
                async with client.chat.completions.stream(model="m", messages=[], temperature=0, **more) as stream:
                    return await stream.get_final_completion()

            for final in await three_ways(bench, gate, ask):
                checked(final.choices[0].message)
                assert final.choices[0].finish_reason == "tool_calls"
                assert (final.usage.prompt_tokens if final.usage else None) == (3 if metered else None)
            whole = await client.chat.completions.create(model="m", messages=[], temperature=0)
            checked(whole.choices[0].message)
            assert whole.usage is not None
            assert whole.usage.total_tokens == 5
            await client.close()

    run(main())


def test_anthropic_streams() -> None:
    async def main() -> None:
        async with cached([event(each, each["type"]) for each in MESSAGES]) as (bench, gate):
            client = anthropic.AsyncAnthropic(base_url=bench.url, api_key="x", max_retries=0)
            asked: dict[str, Any] = {"model": "m", "max_tokens": 99, "extra_body": {"temperature": 0}}
            asked["messages"] = [{"role": "user", "content": "hi"}]

            async def ask() -> Any:
                async with client.messages.stream(**asked) as stream:
                    return await stream.get_final_message()

            for message in [*await three_ways(bench, gate, ask), await client.messages.create(**asked)]:
                text, call = message.content
                assert text.text == TEXT
                assert (call.id, call.name, call.input) == ("t1", "weather", {"city": "Köln"})
                assert message.stop_reason == "tool_use"
                assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 2)
            await client.close()

    run(main())
