"""Answers that a request settles beforehand fit what was asked for."""

import json
from typing import Any

import jsonschema
import pytest
from fakes import run
from sim_client import CHAT, HELLO, fetch, running

SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}, "c": {"type": "null"}}},
    {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer", "minimum": 7}}}},
    {"type": "object", "properties": {"x": {"anyOf": [{"type": "number"}, {"type": "string"}]}, "y": {"const": "é"}}},
    {"type": "object", "properties": {"deep": {"type": "object", "properties": {"er": {"enum": [1, "two", None]}}}}},
    {"type": ["object", "null"], "properties": {"s": {"type": ["string", "null"]}}},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_json_fits_its_schema(schema: dict[str, Any]) -> None:
    async def ask() -> None:
        async with running() as sim:
            for word in "abc":
                messages = [{"role": "user", "content": word}]
                form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
                answer = (await fetch(sim, CHAT, {"messages": messages, "response_format": form})).json
                assert answer["choices"][0]["finish_reason"] == "stop"
                jsonschema.validate(json.loads(answer["choices"][0]["message"]["content"]), schema)
                tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
                asked = {"messages": messages, "tools": [tool], "tool_choice": "required"}
                call = (await fetch(sim, CHAT, asked)).json["choices"][0]["message"]["tool_calls"][0]
                jsonschema.validate(json.loads(call["function"]["arguments"]), schema)

    run(ask())


def test_json_object_is_one() -> None:
    async def ask() -> None:
        async with running() as sim:
            answer = (await fetch(sim, CHAT, HELLO | {"response_format": {"type": "json_object"}})).json
            assert isinstance(json.loads(answer["choices"][0]["message"]["content"]), dict)

    run(ask())


def test_schema_that_contains_itself_comes_to_an_end() -> None:
    async def ask() -> None:
        async with running() as sim:
            schema: dict[str, Any] = {"type": "object", "properties": {}}
            inner = schema
            for _ in range(50):
                inner["properties"]["next"] = inner = {"type": "object", "properties": {}}
            form = {"type": "json_schema", "json_schema": {"schema": schema}}
            answer = await fetch(sim, CHAT, HELLO | {"response_format": form})
            assert json.loads(answer.json["choices"][0]["message"]["content"])

    run(ask())


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "perhaps"}, "literal_error"),
        ({"tools": [{"type": "function"}], "tool_choice": "required"}, "literal_error"),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f"}}],
                "tool_choice": {"type": "function", "function": {"name": "g"}},
            },
            "does not match any",
        ),
        ({"tools": "f", "tool_choice": "required"}, "list_type"),
        ({"messages": [1]}, "missing"),
        ({"messages": {"role": "user"}}, "list_type"),
        ({"messages": [{"role": "user", "content": 5}]}, "string_type"),
        ({"continue_final_message": True}, "are not compatible"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "Cannot set both"),
        ({"top_logprobs": 2}, "`logprobs` must be set to true"),
        ({"response_format": "json"}, "dict_type"),
    ],
)
def test_nonsense_is_refused(asked: dict[str, Any], part: str) -> None:
    async def ask() -> None:
        async with running() as sim:
            refused = await fetch(sim, CHAT, HELLO | asked)
            assert refused.status == 400
            assert part in refused.json["error"]["message"]

    run(ask())


def test_conversation_with_tools_and_parts_becomes_a_prompt() -> None:
    async def ask() -> None:
        async with running() as sim:
            call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
            turns = [
                {"role": "system", "content": [{"type": "text", "text": "Be "}, "brief."]},
                {"role": "user", "content": "What?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "sunny"},
            ]
            ids = (await fetch(sim, "/tokenize", {"messages": turns})).json["tokens"]
            text = (await fetch(sim, "/detokenize", {"tokens": ids})).json["prompt"]
            assert text == (
                "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
                '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n'
                "<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n"
            )

    run(ask())
