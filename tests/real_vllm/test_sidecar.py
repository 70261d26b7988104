"""A real vLLM behind its sidecar behind a gateway: the official SDKs stream, the gateway is told, a kill is seen.

TAILRACE_TEST_VLLM is the executable, TAILRACE_TEST_MODEL a folder or name of a small chat model.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anthropic
import openai
import orjson
import uvloop
from fakes import RawClient, decoded, until
from sidecars import CHAT, KEY, hop, url_of, worker_settings
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.gateway import running as gateway_running
from tailrace.worker.sidecar import SidecarProcess
from tailrace.worker.sidecar import running as sidecar_running

from real_vllm.engines import LAUNCHED

START = 300.0
HELLO = [{"role": "user", "content": "hello"}]


def engine() -> str:
    return orjson.dumps({"vllm": LAUNCHED, "start": {"limit": START}}).decode()


@asynccontextmanager
async def house() -> AsyncIterator[tuple[GatewayProcess, SidecarProcess]]:
    """A gateway that watches a sidecar whose engine is ready; both share a hop key."""
    more = f"hop_key: {KEY}\nconcurrency: 4\nqueue: 4"
    async with sidecar_running(worker_settings(engine(), more)) as side:
        yaml = f"listen: [127.0.0.1:0]\nmodels: {{tiny: {{workers: ['{url_of(side)}']}}}}\nhop_key: {KEY}"
        async with gateway_running(decoded(yaml), watching=True) as front:
            (worker,) = front.workers()
            await until(lambda: side.feed.subscribers == 1)
            await until(lambda: not worker.eligible)
            await until(lambda: worker.eligible, limit=START)
            yield front, side


def test_the_sdks_through_sidecar_and_gateway():
    async def run() -> None:
        async with house() as (front, side):
            url = url_of(front)
            await openai_streams(url)
            await anthropic_streams(url)
            await only_the_served_paths(side)
            await load_is_pushed(front, side, url)
            await leaving_stops_the_engine(side, url)
            await a_kill_is_told_at_once(front, side)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def openai_streams(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        stream = await client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=20, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].usage and chunks[-1].usage.completion_tokens == 20
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
        whole = await client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5)
        assert whole.usage and whole.usage.completion_tokens == 5


async def anthropic_streams(url: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
        async with client.messages.stream(model="tiny", max_tokens=20, messages=HELLO) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            message = await stream.get_final_message()
        assert text
        assert message.stop_reason == "max_tokens"


async def only_the_served_paths(side: SidecarProcess) -> None:
    async with RawClient(url_of(side)) as client:
        assert (await client.get("/v1/models")).status == 401
        assert [model["id"] for model in (await client.get("/v1/models", hop())).json()["data"]] == ["tiny"]
        for path in ("/metrics", "/version", "/load", "/docs"):
            assert (await client.get(path, hop())).status == 404
        assert (await client.get("/readyz")).status == 200


async def load_is_pushed(front: GatewayProcess, side: SidecarProcess, url: str) -> None:
    (worker,) = front.workers()
    body = {"model": "tiny", "messages": HELLO, "max_tokens": 1500, "ignore_eos": True, "stream": True}

    async def one() -> None:
        async with RawClient(url) as client:
            answer = await client.post(CHAT, body)
            assert answer.events[-1].data == b"[DONE]"

    streams = asyncio.gather(*(one() for _ in range(6)))
    seen: set[tuple[int | None, int | None]] = set()

    def pushed() -> bool:
        seen.add((worker.standing.running, worker.standing.waiting))
        # Where the engine has both cores, what it says of itself comes later than what the sidecar counts.
        return any(running == 4 for running, _ in seen) and any(waiting == 2 for _, waiting in seen)

    await until(pushed, lambda: f"seen: {seen}", limit=60)
    await until(lambda: (worker.standing.tokens_per_second or 0) > 10, limit=60)
    await streams
    await until(lambda: (worker.standing.running, worker.standing.waiting) == (0, 0), limit=60)
    assert side.gate.inside == 0


async def leaving_stops_the_engine(side: SidecarProcess, url: str) -> None:
    body = {"model": "tiny", "messages": HELLO, "max_tokens": 1900, "ignore_eos": True, "stream": True}
    client = await RawClient.connect(url)
    await client.request("POST", CHAT, orjson.dumps(body))
    assert (await client.read_head()).status == 200
    await until(lambda: side.report.engine.running == 1, limit=60)
    began = time.monotonic()
    await client.close()
    await until(lambda: side.gate.inside == 0)
    await until(lambda: side.report.engine.idle, limit=60)
    print(f"idle {(time.monotonic() - began) * 1000:.0f} ms after the client left")


async def a_kill_is_told_at_once(front: GatewayProcess, side: SidecarProcess) -> None:
    (worker,) = front.workers()
    pid = side.report.engine.pid
    assert pid is not None
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not worker.eligible)
    print(f"the gateway knew of the kill after {(time.monotonic() - began) * 1000:.1f} ms")
    # A look at its health in the same moment finds nobody there, and may be told first.
    await until(lambda: worker.standing.dead)
    async with RawClient(url_of(front)) as client:
        answer = await client.post(CHAT, {"model": "tiny", "messages": HELLO})
        assert answer.status == 503
    await until(lambda: worker.eligible, limit=START)
    async with RawClient(url_of(front)) as client:
        assert (await client.post(CHAT, {"model": "tiny", "messages": HELLO, "max_tokens": 3})).status == 200
