"""What tests of sidecars use: a simulated engine in this loop and a sidecar before it."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fakes import GOOD, Connection, Request, Upstream, json_answer, until
from tailrace.proxy.config import decode_source, parse
from tailrace.proxy.hop import HopKey
from tailrace.proxy.plugin import Plugin
from tailrace.worker.settings import Worker
from tailrace.worker.sidecar import SidecarProcess, running
from tailrace.worker.sim import ManualClock, Sim, SimSettings, serve

KEY = "a-key-that-hops-share"
CHAT = "/v1/chat/completions"
HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
STREAMED = {**HELLO, "stream": True}


@asynccontextmanager
async def simulated(clock: ManualClock | None = None, **knobs: Any) -> AsyncIterator[Sim]:
    """An engine that answers at once, or as the clock says."""
    quick: dict[str, Any] = {"ttft_ms": 0, "itl_ms": 0, "prefill_tokens_per_s": 0, "keep_requests": 100}
    sim = await serve(SimSettings(**quick | {"model": "tiny", "seed": 1} | knobs), clock)
    try:
        yield sim
    finally:
        await sim.close()


def worker_settings(engine: str, more: str = "", listen: str = "127.0.0.1:0") -> Worker:
    """A worker's settings; `engine` is YAML of one line, `more` further top-level lines."""
    yaml = f"role: worker\nlisten: [{listen}]\nengine: {engine}\npre_stop: 0\n" + textwrap.dedent(more)
    return decode_source(Worker, parse(yaml, "worker.yaml", environ={}))


def found(url: str, **watch: object) -> str:
    """An engine that somebody else runs, looked at often."""
    looks = {"health": 0.05, "poll": 0.02, "quiet_poll": 0.1} | watch
    return f"{{url: '{url}', warmup: {{kind: 'off'}}, watch: {looks}}}"


@asynccontextmanager
async def sidecar(engine: str, more: str = "", listen: str = "127.0.0.1:0") -> AsyncIterator[SidecarProcess]:
    """A sidecar whose engine is ready."""
    async with running(worker_settings(engine, more, listen)) as process:
        await until(lambda: process.report.takes_calls)
        yield process


def url_of(process: Any) -> str:
    """Where a relay in this loop listens."""
    return str(process.doors[0].shown)


def hop(key: str = KEY) -> dict[str, str]:
    """The header of somebody who holds the hop key."""
    return {"x-tailrace-hop": HopKey(key).token().decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSettings:
    """Nothing to set."""


class Attempts(Plugin[NoSettings]):
    """Notes how every attempt ended: `sidecars:Attempts` in a YAML."""

    Config = NoSettings

    def __init__(self, config: NoSettings) -> None:
        super().__init__(config)
        self.ends: list[Any] = []

    def on_attempt_end(self, call: Any, attempt: Any, end: Any) -> None:
        """Note it."""
        self.ends.append(end)


class HeldEngine(Upstream):
    """An engine that is well and answers a chat only when told to: `release()` lets one more answer go."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.calls: list[Request] = []
        self.well = True
        self.models: list[dict[str, str | None]] = [{"id": "m", "parent": None}]
        self._go = asyncio.Semaphore(0)

    def release(self, count: int = 1) -> None:
        """Let so many calls finish."""
        for _ in range(count):
            self._go.release()

    async def _answer(self, conn: Connection, request: Request) -> None:
        if request.method == "GET":
            listed = {"data": self.models} if request.target == "/v1/models" else {}
            status = 404 if request.target.startswith("/metrics") else 200 if self.well else 503
            await conn.send(json_answer(listed, status))
            return
        self.calls.append(request)
        waits = asyncio.ensure_future(self._go.acquire())
        gone = asyncio.ensure_future(conn.wait_closed())
        await asyncio.wait({waits, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if waits.cancel():
            return
        await conn.send(GOOD)
