"""What tests everywhere use: a scripted worker, a gateway of some YAML, a client of raw bytes, and a loop to run on.

def test_something():
    async def body():
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                answer = await client.post(PATH, CHAT)
    run(body())
"""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from tailrace.proxy.config import decode_source, parse
from tailrace.proxy.gateway import GatewayProcess, running
from tailrace.proxy.settings import Gateway
from tailrace.proxy.testing.answers import (
    answer,
    chat_answer,
    chat_chunk,
    chunked,
    event,
    json_answer,
    sse_answer,
    sse_head,
    stream_of,
)
from tailrace.proxy.testing.client import Answer, RawClient, RawHead
from tailrace.proxy.testing.worker import Connection, Request, Script, Upstream, sending

__all__ = [
    "CAPTURES",
    "CHAT",
    "GOOD",
    "PATH",
    "Answer",
    "Connection",
    "RawClient",
    "RawHead",
    "Request",
    "Script",
    "Upstream",
    "answer",
    "capture",
    "chat_answer",
    "chat_chunk",
    "chunked",
    "decoded",
    "event",
    "gateway",
    "json_answer",
    "run",
    "sending",
    "sse_answer",
    "sse_head",
    "stream_of",
    "until",
    "yaml_for",
]

T = TypeVar("T")
CAPTURES = Path(__file__).parent / "captures"
PATH = "/v1/chat/completions"
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
GOOD = json_answer(chat_answer("hi"))


def run(main: Coroutine[Any, Any, T], *, limit: float = 30.0) -> T:
    """Run a coroutine to its end on a loop of its own, as the product does; a hang is an error."""

    async def bounded() -> T:
        async with asyncio.timeout(limit):
            return await main

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


async def until(
    holds: Callable[[], object], what: str | Callable[[], str] = "waited in vain", limit: float = 10.0
) -> None:
    """Wait until something holds, looking often; a failure after `limit` says `what` did not come."""
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(what if isinstance(what, str) else what())
        await asyncio.sleep(0.002)


def decoded(yaml: str) -> Gateway:
    """The settings that some YAML stands for."""
    return decode_source(Gateway, parse(textwrap.dedent(yaml), "test.yaml"))


def yaml_for(*upstreams: Upstream | str, plugins: str = "[]", more: str = "") -> str:
    """A gateway's YAML with the model `m` on these workers; `plugins` is YAML, `more` are further top-level lines."""
    urls = ", ".join(f'"{worker if isinstance(worker, str) else worker.url}"' for worker in upstreams)
    head = f"listen: [127.0.0.1:0]\nmodels: {{m: {{workers: [{urls}]}}}}\n"
    listed = textwrap.dedent(plugins).strip()
    body = f" {listed}\n" if listed.startswith("[") else "\n" + textwrap.indent(listed, "  ") + "\n"
    return head + "plugins:" + body + textwrap.dedent(more)


@asynccontextmanager
async def gateway(yaml: str) -> AsyncIterator[GatewayProcess]:
    """A gateway of some YAML, in this loop; `process.doors[0].shown` is its URL."""
    async with running(decoded(yaml)) as process:
        yield process


def capture(name: str) -> bytes:
    """The bytes of a real engine's answer from `tests/captures`."""
    return (CAPTURES / name).read_bytes()
