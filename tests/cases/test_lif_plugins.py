"""Lifecycle of plugins: open before the first call that may use them, closed behind the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress

import anyio
import orjson
import pytest
from fakes import GOOD, RawClient, Upstream, decoded, gateway, run, yaml_for
from tailrace.proxy import holding
from tailrace.proxy.pipeline import ChainError
from tailrace.proxy.plugin import Plugin

from cases.scene import CHAT, PATH, until
from cases.witness import Config


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


class Lives(Plugin[Config]):
    """Begins and ends as the test says."""

    Config = Config
    how: Callable[[], AbstractAsyncContextManager[None]]
    let_go: asyncio.Event

    def running(self):
        return Lives.how()


async def fails_soon():
    await asyncio.sleep(0.01)
    raise KeyError("child")


async def for_ever():
    await asyncio.get_running_loop().create_future()


async def through_all():
    while True:
        try:
            await for_ever()
        except asyncio.CancelledError:
            if Lives.let_go.is_set():
                raise


@asynccontextmanager
async def asyncio_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(fails_soon())
        yield


@asynccontextmanager
async def anyio_group():
    async with anyio.create_task_group() as group:
        group.start_soon(fails_soon)
        yield


@asynccontextmanager
async def ends_early():
    with suppress(asyncio.CancelledError):
        asyncio.get_running_loop().call_later(0.01, asyncio.current_task().cancel)
        yield


@asynccontextmanager
async def hangs_in_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(for_ever())
        yield


@asynccontextmanager
async def hangs_for_good():
    yield
    await through_all()


@asynccontextmanager
async def fails_at_the_end():
    yield
    raise KeyError("end")


@asynccontextmanager
async def fails_at_the_start():
    async with asyncio.TaskGroup() as group:
        await group.create_task(fails_soon())
    yield


@asynccontextmanager
async def hangs_at_the_start():
    try:
        await for_ever()
    finally:
        Lives.let_go.set()
    yield


PLUGINS = f"[{__name__}:Held, {__name__}:Lives]"


@contextmanager
def lives(how):
    Held.gates, Held.seen, Held.living = {"a": asyncio.Event()}, [], []
    Held.gates["a"].set()
    Lives.how, Lives.let_go = staticmethod(how), asyncio.Event()
    yield
    assert Held.living == []


@pytest.mark.parametrize("how", [asyncio_group, anyio_group, ends_early])
def test_LIF_04_a_plugin_that_ends_while_in_use_is_reported_and_harms_nobody(how, caplog):
    async def body():
        loaded = asyncio.current_task()
        with lives(how):
            async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=PLUGINS)) as process:
                await until(lambda: "ended while it was in use" in caplog.text, "the report")
                assert ("child" in caplog.text) == (how is not ends_early)
                async with RawClient(process.doors[0].shown) as client:
                    assert (await client.post(PATH, {**CHAT, "user": "a"})).status == 200
                assert loaded.cancelling() == 0

    run(body())


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (hangs_in_group, ["is not closed after 0.02 s and is cancelled"]),
        (hangs_for_good, ["is not closed after 0.02 s and is cancelled", "is left to itself"]),
        (fails_at_the_end, ["failed while it was closed"]),
    ],
)
def test_LIF_04_a_plugin_that_cannot_be_closed_holds_nothing_up(how, said, caplog, monkeypatch):
    monkeypatch.setattr(holding, "CLOSE_LIMIT", 0.02)

    async def body():
        with lives(how):
            async with Upstream(GOOD) as upstream:
                yaml = yaml_for(upstream, plugins=PLUGINS)
                async with gateway(yaml) as process:
                    await process.load(decoded(yaml))
                    await until(lambda: len(Held.living) == 1, "the first one was not closed")
                assert [caplog.text.count(text) for text in said] == [2] * len(said)
        Lives.let_go.set()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if "Holding" in repr(task):
                task.cancel()

    run(body())


def test_LIF_04_a_plugin_that_does_not_start_refuses_the_configuration_and_closes_the_others():
    async def body():
        async with Upstream(GOOD) as upstream:
            async with gateway(yaml_for(upstream)) as process:
                said = f"plugin '{__name__}:Lives' could not start: .*fails_at_the_start"
                with lives(fails_at_the_start), pytest.raises(ChainError, match=said):
                    await process.load(decoded(yaml_for(upstream, plugins=PLUGINS)))
                with lives(hangs_at_the_start):
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await process.load(decoded(yaml_for(upstream, plugins=PLUGINS)))
                    assert Lives.let_go.is_set()
                assert process.service.chain.generation == 1

    run(body())
