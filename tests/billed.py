"""A gateway that bills, what it wrote into its ledger, and streams with the usage that engines give."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from fakes import RawClient, Upstream, answer, event, gateway
from scrape import Scrape
from tailrace.plugins.billing import Billing
from tailrace.plugins.billing.part import Part
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.ledger.books import Books
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.segments import FOLDER
from tailrace.proxy.ledger.sums import in_log

PRICES = """
currency: EUR
version: p1
prices:
  - {model: m, prompt: 2, cached_prompt: 0.5, completion: 8, per_request: 0.001}
"""
"""So a token of prompt is 2,000 nano-units, a cached one 500, one of completion 8,000, and a request a million."""


def cost(prompt: int, completion: int, cached: int = 0, requests: int = 1) -> int:
    """What that comes to at PRICES."""
    return 2000 * (prompt - cached) + 500 * cached + 8000 * completion + 1_000_000 * requests


class Scene:
    """The gateway, its worker, a client, and the ledger as it is on disk."""

    def __init__(self, process: GatewayProcess, upstreams: list[Upstream], client: RawClient, state: Path) -> None:
        self.process = process
        self.upstreams = upstreams
        self.upstream = upstreams[0]
        self.client = client
        self.state = state
        self.yaml = ""
        self.kept: dict[str, Any] = {}

    @property
    def billing(self) -> Billing:
        links = self.process.service.chain.pipeline.links
        return next(link.plugin for link in links if isinstance(link.plugin, Billing))

    @property
    def books(self) -> Books:
        """The ledger's part that runs once on a host: here in the same process."""
        found: Part = self.process._host._parts["billing"][1]  # type: ignore[assignment]
        return found.books

    def value(self, name: str, **labels: str) -> float | None:
        """One of the plugin's metrics."""
        found: float | None = Scrape(self.process).value(f"billing_{name}", **labels)
        return found

    def in_log(self) -> list[Record]:
        return list(in_log(self.state / FOLDER, 0, 2**63 - 1))

    async def records(self, count: int) -> list[Record]:
        """The ledger once it has so many records; a moment later there must not be more."""
        end = time.monotonic() + 10
        while len(found := self.in_log()) < count:
            if time.monotonic() > end:
                raise AssertionError(f"the ledger has {len(found)} records, not {count}")
            await asyncio.sleep(0.01)
        assert len(found) == count
        return found

    async def record(self) -> Record:
        return (await self.records(1))[0]


@asynccontextmanager
async def billed(
    folder: Path,
    *scripts: Any,
    prices: str = PRICES,
    more: str = "",
    terms: str = "",
    before: str = "",
    behind: str = "",
    top: str = "",
    models: str = "{m: {workers: [ALL]}}",
    listen: str = "127.0.0.1:0",
) -> AsyncIterator[Scene]:
    """Serve with `billing`, one worker a script.

    `more` are settings of the plugin, `terms` what stands beside it, `before` and `behind` other plugins, `top` further
    settings; in `models` the workers are W0, W1 and so on, or ALL.
    """
    file = folder / "prices.yaml"
    file.write_text(prices)
    state = folder / "state"
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(Upstream(*_several(script))) for script in scripts]
        models = models.replace("ALL", ", ".join(f"W{number}" for number in range(len(upstreams))))
        for number, upstream in reversed(list(enumerate(upstreams))):
            models = models.replace(f"W{number}", f"'{upstream.url}'")
        entry = f"- billing: {{prices: {file}{more}}}\n{terms}"
        plugins = textwrap.indent(before + entry + behind, "  ")
        yaml = f"listen: [{listen}]\nmodels: {models}\nplugins:\n{plugins}\nstate: {state}\n{top}"
        process = await stack.enter_async_context(gateway(yaml))
        client = await stack.enter_async_context(RawClient(process.doors[0].shown))
        scene = Scene(process, upstreams, client, state)
        scene.yaml = yaml
        yield scene


def _several(script: Any) -> list[Any]:
    return script if isinstance(script, list) else [script]


def usage(prompt: int, completion: int, cached: int | None = None) -> dict[str, Any]:
    said: dict[str, Any] = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }
    if cached is not None:
        said["prompt_tokens_details"] = {"cached_tokens": cached}
    return said


def unary(prompt: int, completion: int, cached: int | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    said = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], **more}
    return answer(200, orjson.dumps({**said, "usage": usage(prompt, completion, cached)}))


def token(number: int, prompt: int = 9, *, finish: str | None = None, index: int = 0, running: bool = True) -> bytes:
    """The event of one token in vLLM's spelling, with the usage so far."""
    delta = {"content": f"t{number} "} if number else {"role": "assistant", "content": ""}
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    if running:
        body["usage"] = {**usage(prompt, number), "completion_tokens_details": None}
    return event(body)


def last_usage(prompt: int, completion: int, cached: int | None = None) -> bytes:
    """The event that is there for the usage of the whole."""
    said = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    return event({**said, "usage": usage(prompt, completion, cached)})


def stream(count: int, prompt: int = 9, cached: int | None = None, *, running: bool = True) -> list[bytes]:
    """The events of a whole answer of so many tokens."""
    tokens = [token(number, prompt, running=running) for number in range(count)]
    end = token(count, prompt, finish="stop", running=running)
    return [*tokens, end, last_usage(prompt, count, cached), event("[DONE]")]


def unasked(events: list[bytes]) -> bytes:
    """The same as a client gets them that asked for no usage."""
    shown = []
    for each in events:
        data = each.removeprefix(b"data: ").strip()
        body = None if data == b"[DONE]" else orjson.loads(data)
        if body is not None:
            if not body["choices"]:
                continue
            body.pop("usage", None)
        shown.append(each if body is None else event(body))
    return b"".join(shown)
