"""Tokens and the time of each, under the names of the conventions for generative AI."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from fakes import (
    CHAT,
    PATH,
    RawClient,
    Upstream,
    chat_answer,
    chat_chunk,
    chunked,
    event,
    gateway,
    json_answer,
    run,
    sse_head,
    yaml_for,
)
from tailrace.proxy.metrics import Totals, render
from tailrace.proxy.metrics.generation import operation_of
from tailrace.proxy.plugin import Needs, Plugin

LABELS = 'gen_ai_operation_name="chat",gen_ai_provider_name="vllm",gen_ai_request_model="m"'
USAGE = {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35}


@dataclass(frozen=True)
class Config:
    pass


class Asking(Plugin[Config]):
    """Wants to know what calls use."""

    Config = Config
    needs = Needs.USAGE


def told(script: Any, body: Any, plugins: str = f"['{__name__}:Asking']") -> list[str]:
    async def main() -> list[str]:
        async with Upstream(script) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.post(PATH, body)
            process.service.metrics.write()
            text = render([process.service.metrics.segment], Totals())
            return [line for line in text.splitlines() if line.startswith("gen_ai_")]

    return run(main())


async def stream(conn: Any, request: Any) -> None:
    await conn.send(sse_head() + chunked(chat_chunk("a")))
    await asyncio.sleep(0.04)
    ends = chunked(chat_chunk("b")) + chunked(chat_chunk(finish="stop"))
    usage = chunked(event({"id": "x", "choices": [], "usage": USAGE}))
    await conn.send(ends + usage + chunked(event("[DONE]")) + b"0\r\n\r\n")


def test_a_stream() -> None:
    lines = told(stream, {**CHAT, "stream": True})
    assert f"gen_ai_client_inference_usage_input_tokens_sum{{{LABELS}}} 30" in lines
    assert f'gen_ai_client_inference_usage_input_tokens_bucket{{{LABELS},le="64"}} 1' in lines
    assert f'gen_ai_client_inference_usage_input_tokens_bucket{{{LABELS},le="16"}} 0' in lines
    assert f"gen_ai_client_inference_usage_output_tokens_sum{{{LABELS}}} 5" in lines
    assert f"gen_ai_server_time_per_output_token_seconds_count{{{LABELS}}} 1" in lines
    [took] = [line for line in lines if line.startswith(f"gen_ai_server_time_per_output_token_seconds_sum{{{LABELS}}}")]
    assert float(took.rpartition(" ")[2]) >= 0.039 / 4


def test_a_whole_answer_has_no_time_of_each_token() -> None:
    lines = told(json_answer({**chat_answer("hi"), "usage": USAGE}), CHAT)
    assert f"gen_ai_client_inference_usage_output_tokens_count{{{LABELS}}} 1" in lines
    assert not [
        line
        for line in lines
        if line.startswith("gen_ai_server_time_per_output_token_seconds_count") and line.endswith(" 1")
    ]


def test_nothing_where_nobody_asks_engines_for_usage() -> None:
    assert told(stream, {**CHAT, "stream": True}, plugins="[]") == []


def test_operations_go_by_the_names_of_the_conventions() -> None:
    assert [operation_of(route) for route in ("chat", "messages", "completions", "embeddings", "rerank")] == [
        "chat",
        "chat",
        "text_completion",
        "embeddings",
        "rerank",
    ]
