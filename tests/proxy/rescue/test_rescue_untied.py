"""What a rescue leaves behind: nothing that waits for the collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from fakes import PATH, json_answer, run, sending, until
from lost import ASK, PLUGINS, Engine, is_whole, losing, pausing
from tailrace.proxy.attempt import Attempt
from tailrace.proxy.call import Call
from tailrace.proxy.rescue.doubted import Doubted
from tailrace.proxy.rescue.errand import Errand
from tailrace.proxy.rescue.step import Step
from tailrace.proxy.rescue.trail import Trail
from tailrace.proxy.stream_relay import StreamRelay
from tailrace.proxy.taps import Taps

OF_CALLS = (Call, Attempt, StreamRelay, Taps, Trail, Errand, Step, Doubted)


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left() -> list[str]:
    return [type(each).__name__ for each in gc.get_objects() if isinstance(each, OF_CALLS)]


@pytest.mark.parametrize("asked", [{}, {"stop": ["never"]}, {"stop": ["w4"]}])
@pytest.mark.parametrize("fate", ["fin", "killed", "unpaid"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_rescued_call_is_freed_at_once(fate: str, asked: dict[str, list[str]], goes_on: bool) -> None:
    async def body() -> None:
        victim, other = Engine(fate, 6 if fate == "unpaid" else 2), Engine()
        if not goes_on:
            refuses = sending(json_answer({"error": {"message": "no", "code": 500}}, 500))
            victim.on["/v1/completions"] = other.on["/v1/completions"] = refuses
        before = left()
        async with losing(victim, other, plugins="['cases.witness:Witness', rescue, 'lost:InOrder']") as scene:
            answer = await scene.ask({**ASK, **asked})
            assert is_whole(answer.body) or asked or not goes_on
            scene.witness.calls.clear()
            scene.witness.attempts.clear()
            del scene.witness.outcomes[:]
            await until(lambda: left() == before, lambda: f"left: {left()}", limit=2.0)

    run(body())


@pytest.mark.parametrize("comes_back", [True, False])
@pytest.mark.parametrize("other", ["goes on", "refuses"])
def test_a_call_whose_worker_was_in_doubt_is_freed_at_once(comes_back: bool, other: str) -> None:
    async def body() -> None:
        victim, second = Engine("" if comes_back else "hang"), Engine()
        if comes_back:
            victim.on[PATH] = pausing(0.6)
        if other == "refuses":
            second.on["/tokenize"] = sending(json_answer({"detail": "Not Found"}, 404))
        before = left()
        plugins = PLUGINS.replace("rescue,", "{rescue: {silence: 200ms}},")
        async with losing(victim, second, plugins=plugins, more="timeouts: {gap: 900ms}") as scene:
            answer = await scene.ask(ASK)
            assert is_whole(answer.body) or not comes_back
            scene.witness.calls.clear()
            scene.witness.attempts.clear()
            del scene.witness.outcomes[:]
            await until(lambda: left() == before, lambda: f"left: {left()}", limit=2.0)

    run(body())
