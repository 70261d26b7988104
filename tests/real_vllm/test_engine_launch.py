"""A real vLLM through the launcher: come up, serve, freeze, be killed, come back, drain, go.

TAILRACE_TEST_VLLM is the executable, TAILRACE_TEST_MODEL a folder or name of a small chat model.
"""

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path

import aiohttp
import fakes
from tailrace.worker.engine.launch import Engine, engine
from tailrace.worker.engine.settings import EngineSettings, VllmSettings, WatchSettings
from tailrace.worker.engine.state import EngineState, Phase
from tailrace.worker.engine.stragglers import MARK, marked

from real_vllm.engines import KEY, LAUNCHED

until = partial(fakes.until, limit=300.0)


def settings() -> EngineSettings:
    return EngineSettings(vllm=VllmSettings(**LAUNCHED), watch=WatchSettings(stall=1.0, hung=60.0))


async def stream(it: Engine, tokens: int) -> int:
    """How many events a chat of so many tokens brings; fails if the stream is not whole."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    connector = aiohttp.UnixConnector(it.target.removeprefix("unix:"))
    it.request_sent()
    try:
        async with (
            aiohttp.ClientSession(connector=connector, headers={"authorization": f"Bearer {it.api_key}"}) as session,
            session.post("http://engine/v1/chat/completions", json=body) as response,
        ):
            assert response.status == 200
            seen = b""
            async for chunk in response.content.iter_any():
                it.bytes_heard()
                seen += chunk
            assert seen.endswith(b"data: [DONE]\n\n")
            return seen.count(b"data: ")
    finally:
        it.request_over()


def family(leader: int) -> list[int]:
    """Every process of the engine and its keeper, found by the mark they inherit."""
    mark = next(mark for pid, mark in marked() if pid == leader)
    return [pid for pid, found in marked() if found == mark]


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def test_a_real_engine_through_two_lives():
    states: list[EngineState] = []

    async def run() -> None:
        async with engine(settings(), states.append) as it:
            await until(lambda: it.state.ready)
            assert [model.id for model in it.state.models] == ["tiny"]
            assert it.state.warmth.kind == "chat"
            assert len(it.state.warmth.ttfts) >= 3
            first = it.state.pid
            members = family(first)
            core = [pid for pid in members if title(pid).startswith("VLLM::")]
            assert core, f"the {MARK} did not survive setproctitle"
            assert KEY not in " ".join(map(title, members))

            await load_is_seen(it)
            await frozen_core_is_seen(it, core)
            await killed_server_is_seen_at_once(it, first, members)

            await until(lambda: it.state.ready)
            assert it.state.pid != first
            members = family(it.state.pid)
            streaming = asyncio.ensure_future(stream(it, 400))
            await asyncio.sleep(0.1)
            assert await it.drain(60.0)
            assert it.state.draining
            assert not it.state.ready
            assert await streaming > 100
        assert not any(map(title, members))

    asyncio.run(run())


async def load_is_seen(it: Engine) -> None:
    """On two cores an engine can keep this process from running for as long as a burst lasts: hence several."""
    seen = False
    for _ in range(10):
        streams = asyncio.gather(*(stream(it, 400) for _ in range(6)))
        await until(lambda streams=streams: streams.done() or (it.state.running == 4 and it.state.waiting == 2))
        seen = not streams.done()
        await streams
        await until(lambda: it.state.idle)
        if seen:
            break
    assert seen
    assert it.state.tokens_per_second > 10


async def frozen_core_is_seen(it: Engine, core: list[int]) -> None:
    """Its health check goes on answering 200."""
    for pid in core:
        os.kill(pid, signal.SIGSTOP)
    streaming = asyncio.ensure_future(stream(it, 20))
    await until(lambda: it.state.phase is Phase.SUSPECT)
    assert "no progress" in it.state.reason
    for pid in core:
        os.kill(pid, signal.SIGCONT)
    await streaming
    await until(lambda: it.state.ready)


async def killed_server_is_seen_at_once(it: Engine, leader: int, members: list[int]) -> None:
    """SIGKILL of the API server alone would leave EngineCore and workers alive."""
    began = time.monotonic()
    os.kill(leader, signal.SIGKILL)
    await until(lambda: it.state.dead)
    print(f"death seen after {(time.monotonic() - began) * 1000:.1f} ms")
    await until(lambda: not any(map(title, members)))
    print(f"nothing left after {(time.monotonic() - began) * 1000:.1f} ms")
