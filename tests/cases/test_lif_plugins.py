"""Lifecycle of plugins: open before the first call that may use them, closed behind the last."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import orjson
import pytest
from fakes import RawClient, Upstream, chat_answer, decoded, gateway, json_answer, run, yaml_for
from tailrace.proxy.plugin import Plugin

from cases.scene import CHAT, PATH, until
from cases.witness import Config

GOOD = json_answer(chat_answer("hi"))


class Held(Plugin[Config]):
    """Lets each call wait for its gate, and writes down whether it was open when the call went on."""

    Config = Config
    gates: dict[str, asyncio.Event]
    seen: list[tuple[str, bool]]
    living: list[Held]

    @asynccontextmanager
    async def running(self):
        Held.living.append(self)
        yield
        Held.living.remove(self)

    async def on_request(self, call):
        user = call.body.text("user")
        await Held.gates[user].wait()
        Held.seen.append((user, self in Held.living))


@pytest.mark.parametrize("repeated", [True, False])
def test_LIF_04_plugins_stay_open_for_calls_that_wait_behind_others(repeated):
    async def body():
        users = "abc"
        Held.gates, Held.seen, Held.living = {user: asyncio.Event() for user in users}, [], []
        async with Upstream(GOOD) as upstream:
            yaml = yaml_for(upstream, plugins=f"[{__name__}:Held]")
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                old = process.service.chain
                for count, user in enumerate(users, 1):
                    more = {} if repeated else {f"x-{user}": "1"}
                    await client.request("POST", PATH, orjson.dumps({**CHAT, "user": user}), more)
                    await until(lambda n=count: old.calls.count == n, "calls that wait do not count")
                await process.load(decoded(yaml))
                for user in users:
                    Held.gates[user].set()
                    assert (await client.read_answer()).status == 200
                    await asyncio.sleep(0.01)
                assert Held.seen == [(user, True) for user in users]
                await until(lambda: len(Held.living) == 1, "the old plugin was not closed")
                assert old.calls.count == 0

    run(body())


@pytest.mark.parametrize("half", [True, False])
def test_LIF_04_calls_that_leave_with_their_client_hold_no_plugins(half):
    """Also one whose body is half there, and one that stood behind it."""

    async def body():
        Held.gates, Held.seen, Held.living = {"a": asyncio.Event()}, [], []
        async with Upstream(GOOD) as upstream:
            yaml = yaml_for(upstream, plugins=f"[{__name__}:Held]")
            async with gateway(yaml) as process:
                old = process.service.chain
                async with RawClient(process.doors[0].shown) as client:
                    data = orjson.dumps({**CHAT, "user": "a"})
                    for _ in range(3):
                        await client.request("POST", PATH, data)
                    if half:
                        await client.request("POST", PATH, data[:7], {"content-length": str(len(data))})
                    await until(lambda: old.calls.count == 3 + half, "the calls")
                    await process.load(decoded(yaml))
                await until(lambda: len(Held.living) == 1, "the old plugin was not closed")
                assert (old.calls.count, process.service.active, process.service.memory.used) == (0, 0, 0)

    run(body())


def test_LIF_04_an_offer_to_switch_protocols_counts_once():
    async def body():
        Held.gates, Held.seen, Held.living = {"a": asyncio.Event()}, [], []
        async with Upstream(GOOD) as upstream:
            async with gateway(yaml_for(upstream, plugins=f"[{__name__}:Held]")) as process:
                chain = process.service.chain
                async with RawClient(process.doors[0].shown) as client:
                    offer = {"connection": "upgrade", "upgrade": "h2c"}
                    await client.request("POST", PATH, orjson.dumps({**CHAT, "user": "a"}), offer)
                    await until(lambda: process.service.active == 1, "the call")
                    assert chain.calls.count == 1
                    Held.gates["a"].set()
                    assert (await client.read_answer()).status == 200
                assert (chain.calls.count, process.service.memory.used) == (0, 0)

    run(body())
