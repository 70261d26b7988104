"""A call that is over is freed at once: nothing of it waits for the collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fakes import (
    CHAT,
    PATH,
    RawClient,
    Upstream,
    chat_answer,
    gateway,
    json_answer,
    run,
    sse_answer,
    stream_of,
    yaml_for,
)
from tailrace.proxy.attempt import Attempt
from tailrace.proxy.call import Call
from tailrace.proxy.plugin import Edit, Needs, Plugin
from tailrace.proxy.stream_relay import StreamRelay
from tailrace.proxy.taps import Taps

OF_CALLS = (Call, Attempt, StreamRelay, Taps)
STREAM = {**CHAT, "stream": True}
WHOLE = json_answer(chat_answer("a"))
TOKENS = sse_answer(stream_of(["one", " two"]))
LOST = sse_answer(stream_of(["one"])[:2])
BROKEN = json_answer({"error": {"message": "no", "type": "x", "code": 500}}, status=500)


@dataclass(frozen=True)
class Config:
    """Nothing to say."""


class Passes:
    """An edit that changes nothing."""

    def feed(self, event: Any) -> tuple[Any, ...]:
        return (event,)

    def body(self, data: bytes) -> bytes:
        return data

    def finish(self, outcome: Any) -> tuple[Any, ...]:
        return ()


class Nosy(Plugin[Config]):
    """Takes part in everything."""

    Config = Config
    needs = Needs.USAGE | Needs.RUNNING_USAGE

    def on_request(self, call: Call) -> None:
        call.provide(self)

    def on_stream(self, call: Call, head: Any) -> Edit:
        return Passes()

    def on_ending(self, call: Call, outcome: Any, release: Any) -> bool:
        return False


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left() -> int:
    return sum(type(found) in OF_CALLS for found in gc.get_objects())


@pytest.mark.parametrize("plugins", ["[]", "[route, {'test_untied:Nosy': {}}]"])
@pytest.mark.parametrize(("asked", "script"), [(CHAT, WHOLE), (STREAM, TOKENS), (STREAM, LOST), (CHAT, BROKEN)])
def test_nothing_is_left_for_the_collector(asked: Any, script: bytes, plugins: str) -> None:
    async def body() -> None:
        async with Upstream(script) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            for _ in range(5):
                async with RawClient(process.doors[0].shown) as client:
                    await client.post(PATH, asked)
            assert len(upstream.requests) == 5
        assert left() == 0

    run(body())
