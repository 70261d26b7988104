"""One gateway between scripted workers and raw clients, with a witness in its chain and a check that nothing leaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
from fakes import CHAT, PATH, Answer, RawClient, Upstream, chat_chunk, chunked, event, gateway, until, yaml_for
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.outcome import Outcome
from tailrace.proxy.testing.worker import Script

from cases.witness import Witness

STREAM = {**CHAT, "stream": True}
ROLE = chat_chunk("", role="assistant")
FINISH = chat_chunk(finish="stop")
DONE = event("[DONE]")
USAGE = event({"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
END = b"0\r\n\r\n"
WITNESS = "[cases.witness:Witness]"
PROMPTLY = 0.1


class Scene:
    """What a test of a case acts with."""

    def __init__(self, process: GatewayProcess, upstreams: list[Upstream], clients: AsyncExitStack) -> None:
        self.process = process
        self.upstreams = upstreams
        self.upstream = upstreams[0]
        self.url = process.doors[0].shown
        self._clients = clients
        self.witness: Any = next(
            link.plugin for link in process.service.chain.pipeline.links if isinstance(link.plugin, Witness)
        )

    async def client(self) -> RawClient:
        """A further client connection."""
        return await self._clients.enter_async_context(RawClient(self.url))

    async def ask(self, body: Any = STREAM, path: str = PATH, **rest: Any) -> Answer:
        """One call on a connection of its own."""
        async with RawClient(self.url) as client:
            return await client.post(path, body, **rest)

    async def begin(self, body: Any = STREAM, path: str = PATH) -> RawClient:
        """Send a request and read nothing yet."""
        client = await self.client()
        await client.request("POST", path, orjson.dumps(body))
        return client

    async def outcome(self, count: int = 1) -> Outcome:
        """The last of so many outcomes, once they are there; more are an error."""
        await until(lambda: len(self.witness.outcomes) >= count, "the call's end")
        assert len(self.witness.outcomes) == count
        return self.witness.outcomes[-1]

    async def at_rest(self) -> None:
        """Wait until nothing runs and nothing is held: calls, attempts, connections in use, bodies."""
        await until(lambda: not self._held(), lambda: f"still held: {self._held()}")

    def _held(self) -> dict[str, int]:
        service = self.process.service
        held = {"calls": service.active, "memory": service.memory.used, "chain": service.chain.calls.count}
        for worker in self.process.roster.workers:
            held[f"inflight {worker.name}"] = worker.inflight
            held[f"in use {worker.name}"] = worker.connections.open - worker.connections.resting
        return {name: count for name, count in held.items() if count}


@asynccontextmanager
async def scene(
    *scripts: Script | bytes, plugins: str = WITNESS, more: str = "", workers: int = 1
) -> AsyncIterator[Scene]:
    """A gateway with scripted workers: each script answers one request of the first, the last all that follow.

    With several workers the scripts are theirs, one each. Leaving the block checks that nothing is held and that the
    event loop had nothing to complain of.
    """
    given = [(script,) for script in scripts] if workers > 1 else [scripts]
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(Upstream(*each)) for each in given]
        process = await stack.enter_async_context(gateway(yaml_for(*upstreams, plugins=plugins, more=more)))
        clients = await stack.enter_async_context(AsyncExitStack())
        seen = Scene(process, upstreams, clients)
        yield seen
        await clients.aclose()
        await seen.at_rest()
        for upstream in upstreams:
            assert not upstream.errors
    assert not complaints


async def closed_promptly(upstream: Upstream, count: int = 1) -> None:
    """Check that the worker sees its connection end within the time that "promptly" stands for."""
    began = time.monotonic()
    await until(lambda: len(upstream.closed_at) >= count, "the worker's connection stayed open")
    # Twice the bound: the machine that runs this is busy with other things.
    assert upstream.closed_at[count - 1] - began < 2 * PROMPTLY


def errors_of(body: bytes) -> list[Any]:
    """The error objects among a stream's events."""
    payloads = [orjson.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    return [payload["error"] for payload in payloads if "error" in payload]


def framed(pieces: Iterable[bytes]) -> bytes:
    """Each piece as a chunk of its own."""
    return b"".join([chunked(piece) for piece in pieces])
