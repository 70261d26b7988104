"""The policies of `route` that know nothing of workers but what is under way there, and their weights."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import zip_longest
from types import SimpleNamespace

import pytest
from fakes import CHAT, PATH, Connection, RawClient, Request, Upstream, chat_answer, gateway, json_answer, run, yaml_for
from tailrace.plugins.route import Config, Route
from tailrace.proxy.pipeline import Link, Pipeline


def workers(*inflight: int, weights: tuple[float, ...] = ()):
    return [_Worker(count, weight) for count, weight in zip_longest(inflight, weights, fillvalue=1.0)]


class _Worker(SimpleNamespace):
    def __init__(self, inflight: int, weight: float) -> None:
        super().__init__(inflight=inflight, weight=weight, pools=[self])

    __hash__ = object.__hash__
    __eq__ = object.__eq__


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("inflight", "best"),
    [((0,), [0]), ((3, 1, 2), [1]), ((0, 0, 5), [0, 1]), ((7, 7), [0, 1]), ((1000000, 999999), [1])],
)
def test_the_least_loaded_score_highest(inflight: tuple[int, ...], best: list[int]):
    scores = Route(Config()).score_workers(None, workers(*inflight))
    assert [index for index, score in enumerate(scores) if score == max(scores)] == best
    assert all(0 <= score <= 1 for score in scores)


@pytest.mark.interpreted
def test_random_leaves_the_choice_to_the_core():
    assert set(Route(Config(policy="random")).score_workers(None, workers(9, 0, 4))) == {1.0}


@pytest.mark.interpreted
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


def chosen(plugin: Route, pool: list[_Worker]) -> _Worker:
    """Whom the core would take."""
    scores = plugin.score_workers(None, pool)
    assert all(0 <= score <= 1 for score in scores)
    return random.choice([worker for worker, score in zip(pool, scores, strict=True) if score == max(scores)])


@pytest.mark.interpreted
def test_a_worker_with_twice_the_weight_gets_two_turns():
    plugin, pool = Route(Config(policy="round_robin")), workers(0, 0, 0, weights=(1.0, 2.0, 1.0))
    counts = Counter(pool.index(chosen(plugin, pool)) for _ in range(400))
    assert counts[1] == pytest.approx(200, abs=2)
    assert counts[0] == pytest.approx(100, abs=2)


@pytest.mark.interpreted
def test_a_worker_that_comes_back_has_one_turn_to_catch_up_with():
    plugin, pool = Route(Config(policy="round_robin")), workers(0, 0, 0)
    for _ in range(3):
        chosen(plugin, pool)
    for _ in range(300):
        chosen(plugin, pool[:2])
    counts = Counter(pool.index(chosen(plugin, pool)) for _ in range(30))
    assert counts[2] <= 11


@pytest.mark.interpreted
def test_turns_of_workers_that_left_are_forgotten():
    plugin = Route(Config(policy="round_robin"))
    for _ in range(100):
        pool = workers(*[0] * 8)
        chosen(plugin, pool)
        for worker in pool:
            worker.pools = []
    assert len(plugin._policy._due) <= 80


@pytest.mark.interpreted
def test_random_draws_by_weight():
    plugin, pool = Route(Config(policy="random")), workers(0, 0, 0, weights=(3.0, 1.0, 0.0))
    counts = Counter(pool.index(chosen(plugin, pool)) for _ in range(4000))
    assert counts[0] == pytest.approx(3000, abs=150)
    assert counts[2] == 0


@pytest.mark.interpreted
def test_load_counts_for_its_share_of_the_weight():
    pool = workers(3, 5, 2, weights=(1.0, 4.0, 1.0))
    assert chosen(Route(Config()), pool) is pool[1]


@pytest.mark.interpreted
def test_idle_workers_get_calls_by_weight():
    plugin, pool = Route(Config()), workers(0, 0, weights=(1.0, 3.0))
    counts = Counter(pool.index(chosen(plugin, pool)) for _ in range(2000))
    assert counts[1] == pytest.approx(1500, abs=120)


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", ["least_inflight", "random", "round_robin"])
def test_where_no_worker_has_a_weight_each_may_get_calls(policy: str):
    plugin, pool = Route(Config(policy=policy)), workers(0, 0, weights=(0.0, 0.0))
    assert {pool.index(chosen(plugin, pool)) for _ in range(60)} == {0, 1}


@pytest.mark.parametrize("policy", ["least_inflight", "random", "round_robin"])
def test_simple_policies_take_part_in_the_choice_only(policy: str):
    plugin = Route(Config(policy=policy))
    link = Link(plugin, "route")
    assert Pipeline.of([link]).phases_of(link) == ["score_workers"]


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
