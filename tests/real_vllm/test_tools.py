"""Tool calls of a real vLLM: named and required, whole and streamed, in both APIs' shapes."""

from __future__ import annotations

import json
from typing import Any

from real_vllm.scene import HELLO, Clients, run, scene

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "description": "The weather of some days", "parameters": SCHEMA, "strict": True}
ASKED: dict[str, Any] = {
    "model": "tiny",
    "messages": HELLO,
    "max_tokens": 400,
    "temperature": 0,
    "tools": [{"type": "function", "function": WEATHER}],
}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def is_fitting(arguments: str) -> bool:
    parsed = json.loads(arguments)
    return set(parsed) == {"city", "days"} and parsed["city"] in ("Paris", "Rome") and parsed["days"] in (1, 2)


async def whole(clients: Clients, choice: Any) -> list[tuple[str, str]]:
    answer = await clients.openai.chat.completions.create(**ASKED, tool_choice=choice)
    calls = answer.choices[0].message.tool_calls or []
    return [(call.function.name, call.function.arguments) for call in calls]


async def streamed(clients: Clients, choice: Any) -> list[tuple[str, str]]:
    calls: dict[int, list[str]] = {}
    async for chunk in await clients.openai.chat.completions.create(**ASKED, tool_choice=choice, stream=True):
        for part in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            call = calls.setdefault(part.index, ["", ""])
            call[0] += part.function.name or ""
            call[1] += part.function.arguments or ""
    return [(name, arguments) for name, arguments in calls.values()]


def test_a_named_tool(engine):
    async def body():
        async with scene(engine) as s:
            for ask in (whole, streamed):
                [(name, arguments)] = await ask(s.front, NAMED)
                assert name == "get_weather"
                assert is_fitting(arguments)
                assert [(name, arguments)] == await ask(s.direct, NAMED)

    run(body())


def test_some_tool_is_required(engine):
    async def body():
        async with scene(engine) as s:
            for ask in (whole, streamed):
                calls = await ask(s.front, "required")
                assert calls
                assert all(name == "get_weather" for name, _ in calls)
                assert is_fitting(calls[0][1])
                assert calls == await ask(s.direct, "required")

    run(body())


def test_a_tool_of_the_messages_api(engine):
    async def body():
        async with scene(engine) as s:
            asked: dict[str, Any] = {
                "model": "tiny",
                "messages": HELLO,
                "max_tokens": 400,
                "extra_body": {"temperature": 0},
                "tools": [
                    {"name": "get_weather", "description": "The weather", "input_schema": SCHEMA, "strict": True}
                ],
                "tool_choice": {"type": "tool", "name": "get_weather"},
            }
            answer = await s.anthropic.messages.create(**asked)
            [used] = [block for block in answer.content if block.type == "tool_use"]
            assert is_fitting(json.dumps(used.input))
            async with s.anthropic.messages.stream(**asked) as stream:
                final = await stream.get_final_message()
            [again] = [block for block in final.content if block.type == "tool_use"]
            assert again.input == used.input

    run(body())
