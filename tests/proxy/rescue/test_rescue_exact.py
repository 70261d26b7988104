"""Which requests can be continued exactly, and which field it is where they cannot."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tailrace.proxy.body import JsonBody
from tailrace.proxy.rescue.exact import is_greedy, obstacle, obstacle_in_prompt

MESSAGES = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
PICTURE = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}


def body(fields: dict[str, Any]) -> JsonBody:
    return JsonBody(orjson.dumps(fields), 64)


def chat(**fields: Any) -> JsonBody:
    return body({"model": "m", "messages": MESSAGES, "stream": True, **fields})


def text(**fields: Any) -> JsonBody:
    return body({"model": "m", "prompt": "hi", "stream": True, **fields})


HARMLESS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.1},
    {"max_tokens": 5, "min_tokens": 2, "stop": ["x"], "stop_token_ids": [3], "include_stop_str_in_output": True},
    {"ignore_eos": True, "skip_special_tokens": False, "logit_bias": {"5": 1.0}, "allowed_token_ids": [1, 2]},
    {"stream_options": {"include_usage": True}, "user": "u", "priority": 1, "cache_salt": "s"},
    {"n": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0},
    {"n": None, "seed": None, "tools": None, "response_format": None, "guided_json": None, "logprobs": None},
    {"temperature": 0, "seed": 7},
    {"temperature": 0.0, "seed": 7},
]
CHAT_ONLY: list[dict[str, Any]] = [
    {"max_completion_tokens": 9, "add_generation_prompt": False, "continue_final_message": True},
    {"chat_template": "{{ x }}", "chat_template_kwargs": {"enable_thinking": False}},
    {"tools": [], "tool_choice": "none", "parallel_tool_calls": True},
    {"logprobs": False, "top_logprobs": 0, "response_format": {"type": "text"}},
]
OBSTACLES: list[tuple[dict[str, Any], str]] = [
    ({"n": 2}, "n"),
    ({"n": True}, "n"),
    ({"presence_penalty": 0.1}, "presence_penalty"),
    ({"frequency_penalty": -1}, "frequency_penalty"),
    ({"repetition_penalty": 1.1}, "repetition_penalty"),
    ({"seed": 7}, "seed"),
    ({"seed": 7, "temperature": 0.5}, "seed"),
    ({"seed": 0, "temperature": None}, "seed"),
    ({"logprobs": 0}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"prompt_logprobs": 1}, "prompt_logprobs"),
    ({"echo": True}, "echo"),
    ({"best_of": 2}, "best_of"),
    ({"suffix": "x"}, "suffix"),
    ({"use_beam_search": True}, "use_beam_search"),
    ({"bad_words": ["x"]}, "bad_words"),
    ({"guided_json": {}}, "guided_json"),
    ({"guided_regex": "a+"}, "guided_regex"),
    ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ({"logits_processors": ["x"]}, "logits_processors"),
    ({"kv_transfer_params": {}}, "kv_transfer_params"),
    ({"vllm_xargs": {"a": 1}}, "vllm_xargs"),
    ({"of_a_newer_engine": False}, "of_a_newer_engine"),
    ({"store": True}, "store"),
]
OBSTACLES_OF_CHATS: list[tuple[dict[str, Any], str]] = [
    ({"tools": [TOOL]}, "tools"),
    ({"tools": [TOOL], "tool_choice": "none"}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"functions": [{}]}, "functions"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"documents": [{}]}, "documents"),
    ({"reasoning_effort": "low"}, "reasoning_effort"),
    ({"include_reasoning": False}, "include_reasoning"),
    ({"mm_processor_kwargs": {}}, "mm_processor_kwargs"),
    ({"modalities": ["text"]}, "modalities"),
    ({"prompt": "hi"}, "prompt"),
]


@pytest.mark.parametrize("fields", HARMLESS)
def test_what_means_the_same_for_a_continuation(fields: dict[str, Any]) -> None:
    assert not obstacle(chat(**fields), "chat")
    assert not obstacle(text(**fields), "completions")


@pytest.mark.parametrize("fields", CHAT_ONLY)
def test_what_chats_may_say(fields: dict[str, Any]) -> None:
    assert not obstacle(chat(**fields), "chat")


@pytest.mark.parametrize(("fields", "name"), OBSTACLES)
def test_obstacles(fields: dict[str, Any], name: str) -> None:
    assert obstacle(chat(**fields), "chat") == name
    assert obstacle(text(**fields), "completions") == name


@pytest.mark.parametrize(("fields", "name"), OBSTACLES_OF_CHATS)
def test_obstacles_of_chats(fields: dict[str, Any], name: str) -> None:
    assert obstacle(chat(**fields), "chat") == name


@pytest.mark.parametrize("route", ["messages", "responses", "embeddings", ""])
def test_other_routes_are_not_continued(route: str) -> None:
    assert obstacle(chat(), route) == "route"


def test_a_field_that_a_plugin_added_counts_and_one_that_it_took_away_does_not() -> None:
    asked = chat(n=2)
    asked.edit("n", None)
    asked.edit("return_token_ids", b"true")
    assert not obstacle(asked, "chat")
    asked.edit("seed", b"5")
    assert obstacle(asked, "chat") == "seed"


@pytest.mark.parametrize(
    ("temperature", "greedy"), [(0, True), (0.0, True), (1e-9, False), (None, False), ("0", False)]
)
def test_greedy(temperature: Any, greedy: bool) -> None:
    assert is_greedy(chat(temperature=temperature)) is greedy


@pytest.mark.parametrize(
    ("messages", "plain"),
    [
        (MESSAGES, True),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], True),
        ([{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "3"}], True),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, PICTURE]}], False),
        ([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}], False),
        ([{"role": "user", "content": ["a"]}], False),
        ("hi", False),
        (None, False),
    ],
)
def test_only_text_in_a_chat(messages: Any, plain: bool) -> None:
    assert obstacle_in_prompt(chat(messages=messages), "chat") == ("" if plain else "messages")


@pytest.mark.parametrize(
    ("prompt", "whole"),
    [("hi", True), ([1, 2], True), (["hi"], False), ([[1, 2]], False), ([], False), (None, False), ({}, False)],
)
def test_one_prompt(prompt: Any, whole: bool) -> None:
    assert obstacle_in_prompt(text(prompt=prompt), "completions") == ("" if whole else "prompt")
