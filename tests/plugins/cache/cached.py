"""A gateway with the `cache` plugin and a worker whose every answer is another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fakes import CHAT, PATH, chat_answer, chat_chunk, event, json_answer, sse_answer
from tailrace.plugins.cache import Cache
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import Bench

COLD = {**CHAT, "temperature": 0}


STREAM = {**COLD, "stream": True}


USAGE = event({"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})


ROLE = chat_chunk("", role="assistant")


STOP = chat_chunk(finish="stop")


DONE = event("[DONE]")


def streamed(text: str) -> bytes:
    return sse_answer([ROLE, chat_chunk(text), STOP, USAGE, DONE])


class Counted:
    """A worker whose every answer is another one."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, conn: Any, request: Any) -> None:
        self.asked += 1
        text = f"answer {self.asked}"
        await conn.send(streamed(text) if request.json().get("stream") else json_answer(chat_answer(text)))


@asynccontextmanager
async def cache(config: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[tuple[Bench, Counted]]:
    worker = Counted()
    async with plugin_bench(Cache, config or {}, answer=worker, **more) as bench:
        yield bench, worker


async def ask(bench: Bench, body: Any = COLD, headers: dict[str, str] | None = None) -> str:
    answer = await bench.post(PATH, body, headers)
    return answer.header("x-tailrace-cache") or "?"


def numbers(bench: Bench) -> dict[tuple[str, ...], float]:
    return {(name, *labels.values()): value for name, labels, value in bench.plugin.metrics()}  # type: ignore[attr-defined]
