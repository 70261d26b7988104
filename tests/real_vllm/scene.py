"""A gateway before a real vLLM, the official SDKs before the gateway, and what the gateway says of each call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import anthropic
import fakes
import openai
from cases.witness import Witness
from fakes import Answer, RawClient, gateway, until
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.outcome import Outcome

from real_vllm.engines import KEY, Vllm

run = partial(fakes.run, limit=120.0)
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Say something about rivers."}]
LONG = 15000
"""Tokens: half a minute of streaming, so that whatever happens to the engine happens in the middle."""


class Clients:
    """Both official SDKs for one base URL; they try once, so that a failure is seen as it came."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.openai = openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=60.0)
        # As a bearer token, because vLLM looks for its key nowhere else.
        self.anthropic = anthropic.AsyncAnthropic(base_url=url, auth_token=key, max_retries=0, timeout=60.0)

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        """One request of raw bytes on a connection of its own."""
        async with RawClient(self.url) as client:
            return await client.post(path, body, headers)

    async def close(self) -> None:
        await self.openai.close()
        await self.anthropic.close()


class Scene:
    """What a test acts with: `front` goes through the gateway, `direct` straight to the engine."""

    def __init__(self, engine: Vllm, process: GatewayProcess) -> None:
        self.engine = engine
        self.process = process
        self.front = Clients(process.doors[0].shown, "the-clients-key")
        self.direct = Clients(engine.url, KEY)
        self.openai, self.anthropic = self.front.openai, self.front.anthropic
        self._witness: Witness = next(
            link.plugin for link in process.service.chain.pipeline.links if isinstance(link.plugin, Witness)
        )

    async def outcomes(self, count: int) -> list[Outcome]:
        """What became of the calls, as soon as so many are over."""
        seen = self._witness.outcomes
        await until(lambda: len(seen) >= count, lambda: f"{len(seen)} of {count} calls are over")
        assert len(seen) == count
        return list(seen)

    async def outcome(self) -> Outcome:
        """What became of the only call."""
        return (await self.outcomes(1))[0]

    async def idle_engine(self, within: float) -> None:
        """Wait until the engine runs nothing and nothing waits in it."""
        end = time.monotonic() + within
        while True:
            asked = time.monotonic()
            busy = await self.busy()
            if busy == (0, 0):
                return
            assert asked < end, f"running and waiting after {within} s: {busy}"
            await asyncio.sleep(0.02)

    async def busy(self) -> tuple[int, int]:
        """How many requests the engine runs, and how many wait in it."""
        async with aiohttp.ClientSession() as session, session.get(self.engine.url + "/metrics") as response:
            lines = (await response.text()).splitlines()
        return sample(lines, "vllm:num_requests_running"), sample(lines, "vllm:num_requests_waiting")

    async def at_rest(self) -> None:
        """Wait until the gateway holds nothing any more."""
        service = self.process.service
        workers = self.process.roster.workers
        await until(
            lambda: (
                not service.active
                and not service.memory.used
                and all(not worker.inflight for worker in workers)
                and all(worker.connections.open == worker.connections.resting for worker in workers)
            ),
            "the gateway still holds something",
        )


@asynccontextmanager
async def scene(engine: Vllm, *, more: Sequence[str] = (), key: str = KEY) -> AsyncIterator[Scene]:
    """A gateway that knows the engine's model, and one named `ghost` that the engine does not have."""
    yaml = "\n".join(
        [
            "listen: [127.0.0.1:0]",
            f"pools: {{real: {{workers: ['{engine.url}'], api_key: {key}}}}}",
            "models: {tiny: {pool: real}, ghost: {pool: real}}",
            "plugins: ['cases.witness:Witness']",
            *more,
        ]
    )
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(gateway(yaml))
        here = Scene(engine, process)
        stack.push_async_callback(here.direct.close)
        stack.push_async_callback(here.front.close)
        yield here
        await here.at_rest()


def sample(lines: Sequence[str], name: str) -> int:
    """The value of a metric with one series."""
    values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith((name + "{", name + " "))]
    assert len(values) == 1, f"{name} has {len(values)} series"
    return int(float(values[0]))
