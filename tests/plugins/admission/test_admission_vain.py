"""The plugin `admission` in a gateway: whoever would wait in vain is told at once."""

from __future__ import annotations

import time

import pytest
from admitted import Held, asks, begin, chain, counted, plugin_of
from cases.scene import CHAT, scene, until
from fakes import run
from tailrace.plugins.admission import plugin


def taking(s, seconds: float, calls: int = 8) -> None:
    """Have calls taken so long for their places up to now."""
    [desk] = plugin_of(s).usher.desks.values()
    for _ in range(calls):
        desk.outlook.ended(seconds, time.monotonic())


def test_what_would_wait_in_vain_is_refused_at_once():
    async def main():
        held = Held()
        async with scene(held, plugins=chain("{capacity: 1}", "- deadline: {}")) as s:
            first = await s.begin(asks("a"))
            await until(lambda: len(held.seen) == 1)
            taking(s, 60.0)
            answer = await s.ask(CHAT, headers={"x-tailrace-budget-ms": "20000"})
            assert answer.status == 503
            assert answer.json()["error"]["code"] == "gateway_overloaded"
            assert "60 s are expected" in answer.json()["error"]["message"]
            assert counted(s, "refused_total", why="late") == 1
            assert counted(s, "waited_total") == 0
            held.release()
            assert (await first.read_answer()).status == 200

    run(main())


def test_without_ends_that_tell_nobody_is_refused_early():
    async def main():
        held = Held()
        async with scene(held, plugins=chain("{capacity: 1}", "- deadline: {}")) as s:
            first = await s.begin(asks("a"))
            await until(lambda: len(held.seen) == 1)
            taking(s, 60.0, calls=7)
            second = await s.begin(asks("b"))
            await until(lambda: counted(s, "waiting") == 1)
            held.release(2)
            for client in (first, second):
                assert (await client.read_answer()).status == 200

    run(main())


@pytest.mark.parametrize("usual", [0.0, 9.0])
def test_a_turn_without_the_time_to_answer_is_none(usual: float):
    async def main():
        held = Held()
        config = "{capacity: 1, classes: [{name: only, wait: 1m}]}"
        async with scene(held, plugins=chain(config, "- deadline: {}")) as s:
            first = await s.begin(asks("a"))
            await until(lambda: len(held.seen) == 1)
            taking(s, 25.0)
            deadline = s.process.service.chain.pipeline.links[-2].plugin
            if usual:
                for _ in range(40):
                    deadline.keeper.forecast.note("m", 100, True, usual, time.monotonic())
            second = await begin(s, "b", x_tailrace_budget_ms="30000")
            if usual:
                answer = await second.read_answer()
                assert answer.status == 503
                assert "not likely to come by then" in answer.json()["error"]["message"]
                assert counted(s, "refused_total", why="late") == 1
            else:
                await until(lambda: counted(s, "waiting") == 1)
                held.release()
                await until(lambda: held.seen == ["a", "b"])
            held.release()
            assert (await first.read_answer()).status == 200

    run(main())


def test_who_waits_in_vain_by_now_is_sent_away_before_the_time_is_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plugin, "LOOK", 0.005)

    async def main():
        held = Held()
        async with scene(held, plugins=chain("{capacity: 1}", "- deadline: {}")) as s:
            first = await s.begin(asks("a"))
            await until(lambda: len(held.seen) == 1)
            second = await s.begin(asks("b"))
            await until(lambda: counted(s, "waiting") == 1)
            taking(s, 500.0)
            answer = await second.read_answer()
            assert (answer.status, answer.json()["error"]["code"]) == (503, "gateway_overloaded")
            assert counted(s, "refused_total", why="late") == 1
            held.release()
            assert (await first.read_answer()).status == 200
            assert held.seen == ["a"]

    run(main())


def usually(s, *seconds: float) -> None:
    """Have first contents taken so long lately."""
    deadline = s.process.service.chain.pipeline.links[-2].plugin
    for took in seconds * 40:
        deadline.keeper.forecast.note("m", 100, True, took, time.monotonic())


def refused_behind_one(usual: tuple[float, ...], budget_ms: int, why: str) -> str:
    async def main():
        held = Held()
        async with scene(
            held, plugins=chain("{capacity: 1, classes: [{name: only, wait: 1m}]}", "- deadline: {}")
        ) as s:
            first = await s.begin(asks("a"))
            await until(lambda: len(held.seen) == 1)
            usually(s, *usual)
            answer = await s.ask(CHAT, headers={"x-tailrace-budget-ms": str(budget_ms)})
            assert answer.status == 503
            assert counted(s, "refused_total", why=why) == 1
            held.release()
            assert (await first.read_answer()).status == 200
            return answer.json()["error"]["message"]

    return run(main())


def test_a_wait_ends_when_too_little_is_left_to_answer():
    assert refused_behind_one((29.5,), 30_000, "waited").startswith("No place came free within 0.")


def test_what_is_hardly_in_time_without_a_wait_does_not_wait():
    assert refused_behind_one((10.0, 20.0), 15_000, "late").startswith("Nothing is left")
