"""Simulated engines that fail as real ones do, bare and behind sidecars: each answer is rescued, or ends honestly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from cutting import CHAT, TEXT, Essence, essence, same
from fakes import Answer, RawClient, gateway, run, until
from sidecars import found, sidecar, simulated, url_of
from tailrace.plugins.rescue import Rescue
from tailrace.proxy.gateway import GatewayProcess
from tailrace.worker.sim import Sim
from tailrace.worker.sim.control import inflict
from tailrace.worker.sim.failures import Fault

PLUGINS = "[rescue: {silence: 500ms}, 'lost:InOrder']"
COUNT = 12
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Say something 🎉"}]},
    TEXT: {"prompt": "水 and rivers"},
}
# Whether the whole server is gone, or silent, afterwards.
DEATHS = ["engine_killed", "server_killed", "sigterm", "freeze"]
LOSSES = [*DEATHS, "stall", "cut", "half_event", "error_event", "abort", "false_end", "false_done"]


class Scene:
    def __init__(self, process: GatewayProcess, sims: list[Sim]) -> None:
        self.process = process
        self.sims = sims

    async def ask(self, path: str, **more: Any) -> Answer:
        fields = {"model": "tiny", "temperature": 0, "max_tokens": COUNT, "stream": True, **ASKED[path], **more}
        async with RawClient(self.process.doors[0].shown) as client:
            return await client.post(path, fields)

    async def calm(self, path: str, **more: Any) -> Essence:
        """What is said where nothing goes wrong."""
        said = essence((await self.ask(path, **more)).body)
        assert said.done
        return said

    @property
    def rescued(self) -> float:
        """How many streams went on."""
        links = self.process.service.chain.pipeline.links
        plugin = next(link.plugin for link in links if isinstance(link.plugin, Rescue))
        return sum(count for name, _, count in plugin.metrics() if name == "streams_total")


@asynccontextmanager
async def engines(*, behind: bool = False, plugins: str = PLUGINS, itl: float = 1) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        sims = [await stack.enter_async_context(simulated(answer_tokens=0, text="mixed", itl_ms=itl)) for _ in range(2)]
        urls = [sim.url for sim in sims]
        if behind:
            urls = [url_of(await stack.enter_async_context(sidecar(found(url)))) for url in urls]
        workers = ", ".join(f'"{url}"' for url in urls)
        yaml = f"listen: [127.0.0.1:0]\npre_stop: 0\nmodels: {{tiny: {{workers: [{workers}]}}}}\nplugins: {plugins}\n"
        yield Scene(await stack.enter_async_context(gateway(yaml)), sims)
        for sim in sims:
            sim.thaw()


@pytest.mark.parametrize("fail", LOSSES)
@pytest.mark.parametrize("path", ASKED)
def test_every_loss_of_an_engine(path: str, fail: str) -> None:
    async def body() -> None:
        async with engines() as scene:
            usage = {"stream_options": {"include_usage": True}}
            calm = await scene.calm(path, **usage)
            inflict(scene.sims[0].engine, Fault(fail=fail, after_tokens=5, count=1, route="/v1"))
            answer = await scene.ask(path, **usage)
            assert not same(calm, essence(answer.body)), answer.body
            assert answer.complete
            assert scene.rescued == 1

    run(body())


@pytest.mark.parametrize("fail", ["engine_killed", "server_killed", "sigterm", "cut", "abort", "error_event"])
def test_every_loss_of_an_engine_behind_a_sidecar(fail: str) -> None:
    async def body() -> None:
        async with engines(behind=True) as scene:
            calm = await scene.calm(CHAT)
            inflict(scene.sims[0].engine, Fault(fail=fail, after_tokens=5, count=1, route="/v1"))
            answer = await scene.ask(CHAT)
            assert not same(calm, essence(answer.body)), answer.body
            assert scene.rescued == 1

    run(body())


def test_many_streams_of_a_dying_engine_all_go_on() -> None:
    async def body() -> None:
        async with engines(plugins=PLUGINS.replace("[", "[retry, ", 1), itl=20) as scene:
            asked = [{"messages": [{"role": "user", "content": f"Number {number}"}]} for number in range(20)]
            calm = await asyncio.gather(*[scene.calm(CHAT, **each) for each in asked])
            inflict(scene.sims[0].engine, Fault(fail="server_killed", after_tokens=9))
            said = await asyncio.gather(*[scene.ask(CHAT, **each) for each in asked])
            differences = [same(one, essence(other.body)) for one, other in zip(calm, said, strict=True)]
            assert not any(differences), differences
            assert scene.rescued >= 5

    run(body())


def test_the_next_engine_dies_too() -> None:
    async def body() -> None:
        async with engines() as scene:
            calm = await scene.calm(CHAT)
            for sim in scene.sims:
                inflict(sim.engine, Fault(fail="cut", after_tokens=3, count=1, route="/v1"))
            answer = await scene.ask(CHAT)
            assert not same(calm, essence(answer.body))
            assert scene.rescued == 2

    run(body())


@pytest.mark.parametrize("after", [0, 4])
def test_an_event_that_is_none_is_passed_on(after: int) -> None:
    """It is between its engine and its client; the stream is not broken off for it."""

    async def body() -> None:
        async with engines() as scene:
            calm = await scene.calm(CHAT)
            inflict(scene.sims[0].engine, Fault(fail="garbage_event", after_tokens=after, count=1, route="/v1"))
            inflict(scene.sims[0].engine, Fault(fail="cut", after_tokens=8, route="/v1", count=1))
            answer = await scene.ask(CHAT)
            garbage = [event for event in answer.events if event.data.startswith(b"{") and event.json() is None]
            assert len(garbage) == 1
            kept = answer.body.replace(garbage[0].raw, b"")
            assert not same(calm, essence(kept))

    run(body())


@pytest.mark.parametrize("fail", ["wrong_usage", "no_usage"])
def test_usage_of_a_rescued_stream_is_counted_here(fail: str) -> None:
    """Whatever the next engine says of it."""

    async def body() -> None:
        async with engines() as scene:
            usage = {"stream_options": {"include_usage": True}}
            calm = await scene.calm(CHAT, **usage)
            inflict(scene.sims[0].engine, Fault(fail="cut", after_tokens=5, count=1, route="/v1"))
            inflict(scene.sims[1].engine, Fault(fail=fail, route="/v1"))
            answer = await scene.ask(CHAT, **usage)
            assert not same(calm, essence(answer.body)), essence(answer.body)

    run(body())


def test_an_engine_that_says_it_is_busy_is_passed_over() -> None:
    async def body() -> None:
        async with engines() as scene:
            inflict(scene.sims[0].engine, Fault(fail="cut", after_tokens=5, count=1, route="/v1"))
            calm = None
            inflict(scene.sims[1].engine, Fault(fail="queue_full", count=1, route="/v1"))
            answer = await scene.ask(CHAT)
            said = essence(answer.body)
            assert calm is None
            # The one that lost the connection is still well, and asked again.
            assert said.done
            assert not said.errors
            calm = await scene.calm(CHAT)
            assert not same(calm, said)

    run(body())


def test_drawn_answers_go_on() -> None:
    async def body() -> None:
        async with engines() as scene:
            inflict(scene.sims[0].engine, Fault(fail="server_killed", after_tokens=5, route="/v1"))
            said = essence((await scene.ask(CHAT, temperature=0.8, stream_options={"include_usage": True})).body)
            assert said.done
            assert said.usage[0][1] == COUNT
            assert said.ends == [("length", None)]
            assert "\ufffd" not in said.text

    run(body())


def test_what_ran_at_the_engines_is_freed() -> None:
    async def body() -> None:
        async with engines() as scene:
            inflict(scene.sims[0].engine, Fault(fail="stall", after_tokens=9, count=1, route="/v1"))
            assert essence((await scene.ask(CHAT, stop=["never"])).body).done
            for sim in scene.sims:
                await until(lambda sim=sim: not sim.scheduler.running)

    run(body())
