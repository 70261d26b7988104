"""Which worker the `route` plugin sends an attempt to."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
from fakes import CHAT, PATH, Connection, RawClient, Request, Upstream, chat_answer, gateway, json_answer, run, yaml_for
from tailrace.plugins.route import Config, Route


def workers(*inflight: int):
    return [_Worker(count) for count in inflight]


class _Worker(SimpleNamespace):
    def __init__(self, inflight: int) -> None:
        super().__init__(inflight=inflight)

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("inflight", "best"),
    [((0,), [0]), ((3, 1, 2), [1]), ((0, 0, 5), [0, 1]), ((7, 7), [0, 1]), ((1000000, 999999), [1])],
)
def test_the_least_loaded_score_highest(inflight: tuple[int, ...], best: list[int]):
    scores = Route(Config()).score_workers(None, workers(*inflight))
    assert [index for index, score in enumerate(scores) if score == max(scores)] == best
    assert all(0 <= score <= 1 for score in scores)


def test_random_leaves_the_choice_to_the_core():
    assert set(Route(Config(policy="random")).score_workers(None, workers(9, 0, 4))) == {1.0}


def test_round_robin_takes_each_in_turn_over_changing_candidates():
    plugin = Route(Config(policy="round_robin"))
    pool = workers(0, 0, 0)

    def chosen(candidates):
        scores = plugin.score_workers(None, candidates)
        assert sorted(scores) == [0.0] * (len(candidates) - 1) + [1.0]
        return candidates[scores.index(1.0)]

    first = [chosen(pool) for _ in range(3)]
    assert Counter(map(id, first)) == Counter(map(id, pool))
    assert [chosen(pool) for _ in range(3)] == first
    gone = first[0]
    rest = [worker for worker in pool if worker is not gone]
    assert chosen(rest) is first[1]
    assert chosen(pool) is gone


def test_a_burst_spreads_because_choices_count_at_once():
    held = asyncio.Event()

    async def script(conn: Connection, request: Request) -> None:
        await held.wait()
        await conn.send(json_answer(chat_answer("ok")))

    async def body():
        async with (
            Upstream(script) as one,
            Upstream(script) as two,
            Upstream(script) as three,
            gateway(yaml_for(one, two, three, plugins="[route]")) as process,
        ):

            async def ask():
                async with RawClient(process.doors[0].shown) as client:
                    return (await client.post(PATH, CHAT)).status

            asks = [asyncio.create_task(ask()) for _ in range(12)]
            for upstream in (one, two, three):
                await upstream.asked(4)
            held.set()
            assert await asyncio.gather(*asks) == [200] * 12
            assert [len(upstream.requests) for upstream in (one, two, three)] == [4, 4, 4]

    run(body())
