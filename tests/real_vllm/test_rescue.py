"""Two real engines, one of which is lost under streams: every answer is what it would have been.

Greedy answers to prompts with emoji, other scripts and stop strings are taken down first, from the engine that stays.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cutting import CHAT, Essence, essence, rescuing, same
from fakes import RawClient, gateway, until
from tailrace.plugins.rescue import Rescue
from tailrace.proxy.fleet import Worker
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.stream_relay import StreamRelay

from real_vllm.engines import KEY, Vllm
from real_vllm.scene import run

ROOMY = ("--max-num-seqs", "32", "--max-num-queued-reqs", "256")
TOKENS = 960
STREAMS = 20
SUBJECTS = [
    *("rivers", "日本語", "emoji 🎉👩‍👩‍👧🇩🇪", "café Ω≈ç√", "Äpfel"),
    *("дожди", "القمر", "한국어", 'tabs\tand "quotes"', "1 + 1 ="),
]
PROMPTS = [f"Say something about {subject}{end}" for end in (".", "!") for subject in SUBJECTS]


@pytest.fixture(scope="module")
def survivor(session_engines: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    session_engines.stop()
    engine = Vllm(ROOMY, tmp_path_factory.mktemp("survivor") / "vllm.log")
    yield engine
    engine.stop()


@pytest.fixture
def victim(tmp_path: Path, survivor: Vllm) -> Iterator[Vllm]:
    engine = Vllm(ROOMY, tmp_path / "vllm.log")
    yield engine
    engine.stop()


def asked(number: int) -> dict[str, Any]:
    """The request of one stream; every fourth has a stop string that is hardly ever met, so that text is held back."""
    request: dict[str, Any] = {
        "model": "tiny",
        "messages": [{"role": "user", "content": PROMPTS[number]}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return {**request, "stop": ["zebra crossing"]} if number % 4 == 3 else request


async def told(url: str, number: int, key: str = "a-client") -> Essence:
    """What a client is told; one that takes the least of the machine, whose cores the engines need."""
    async with RawClient(url) as client:
        return essence((await client.post(CHAT, asked(number), {"authorization": f"Bearer {key}"})).body)


def yaml(*engines: Vllm) -> str:
    urls = ", ".join(f"'{engine.url}'" for engine in engines)
    return f"""
        listen: [127.0.0.1:0]
        pools: {{real: {{workers: [{urls}], api_key: {KEY}}}}}
        models: {{tiny: {{pool: real}}}}
        plugins: [route, retry, rescue]
        """


def rescued(process: GatewayProcess) -> float:
    """How many streams went on elsewhere, by the counter."""
    plugin = next(link.plugin for link in process.service.chain.pipeline.links if isinstance(link.plugin, Rescue))
    return sum(value for name, _, value in plugin.metrics() if name == "streams_total")


def left_at(worker: Worker) -> list[int]:
    """How many tokens each stream still owes that has begun at a worker."""
    relays = [connection.sink for connection in worker.connections.busy if isinstance(connection.sink, StreamRelay)]
    return [TOKENS - len(relay.call.trail.ids) for relay in relays if relay.call.trail is not None]


def are_midway(left: list[int]) -> bool:
    """Whether all have begun, and most are far from their end."""
    return len(left) == STREAMS and sum(count > TOKENS // 2 for count in left) > STREAMS // 2


def stand_still(engine: Vllm) -> None:
    for pid in engine.members():
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize(
    "strike",
    [
        pytest.param(lambda engine: engine.kill_core(), id="engine killed"),
        pytest.param(lambda engine: engine.kill_server(), id="server killed"),
        pytest.param(lambda engine: engine.kill_server(signal.SIGTERM), id="server terminated"),
        pytest.param(stand_still, id="all of it stopped"),
    ],
)
def test_streams_outlive_their_engine(strike: Callable[[Vllm], None], victim: Vllm, survivor: Vllm) -> None:
    async def main() -> None:
        calm = await asyncio.gather(*[told(survivor.url, number, KEY) for number in range(STREAMS)])
        # An engine's first answers take long to begin, and come all at once then.
        await asyncio.gather(*[told(victim.url, number, KEY) for number in range(STREAMS)])
        async with gateway(yaml(victim, survivor)) as process:
            lost, other = process.roster.workers
            if lost.name != victim.url:
                lost, other = other, lost
            # One engine at a time: on two cores two of them keep each other, and the gateway, waiting for seconds.
            other.bar("test")
            url = process.doors[0].shown
            streams = asyncio.gather(*[told(url, number) for number in range(STREAMS)])
            await until(lambda: are_midway(left_at(lost)), "they are not midway")
            other.unbar("test")
            strike(victim)
            differences = [same(one, other) for one, other in zip(calm, await streams, strict=True)]
            count = rescued(process)
        assert differences == [""] * STREAMS
        assert all(one.done for one in calm)
        assert count >= 5

    run(main())


CUT_PROMPTS = int(os.environ.get("TAILRACE_TEST_CUT_PROMPTS", "3"))
MANY = [*PROMPTS, *(f"{number} {subject}? 🙂" for number in range(3) for subject in SUBJECTS)]


@pytest.mark.timeout(3600)
def test_stream_cut_at_every_token(survivor: Vllm) -> None:
    """Both ends of the cut are one engine: what counts is that it is asked anew."""

    async def main() -> None:
        cuts = 0
        async with rescuing([survivor.url, survivor.url], key=KEY) as scene:
            for prompt in MANY[:CUT_PROMPTS]:
                body = {"model": "tiny", "temperature": 0, "max_tokens": 24}
                body["messages"] = [{"role": "user", "content": prompt}]
                calm = essence((await scene.ask(CHAT, body)).body)
                assert calm.done
                for index in range(100):
                    before = scene.shears.cuts
                    answer = await scene.ask(CHAT, body, cut_after=index)
                    if scene.shears.cuts == before:
                        break
                    cuts += 1
                    difference = same(calm, essence(answer.body))
                    assert not difference, f"{prompt!r} cut after {index} events: {difference}"
        print(f"{cuts} streams of {CUT_PROMPTS} prompts were cut, and all of them went on exactly")
        assert cuts >= 24 * CUT_PROMPTS

    run(main(), limit=3600.0)
