"""When the `hedge` plugin asks a second worker, and what keeps it from that."""

from __future__ import annotations

import asyncio

import pytest
from fakes import run
from hedging import hedging, spoken
from racing import Course, policy, racing
from tailrace.plugins.hedge import Hedge
from tailrace.plugins.hedge.hedges import _kind
from tailrace.plugins.hedge.settings import Config
from tailrace.plugins.retry import BudgetSettings, Retry
from tailrace.plugins.retry import Config as RetryConfig
from tailrace.proxy.fleet import MAX_CANDIDATES

pytestmark = pytest.mark.interpreted


@racing
async def test_the_second_attempt_wins(course):
    plugin = hedging()
    c = course(plugin, workers="abc").start()
    spoken(c)
    await asyncio.sleep(0.03)
    assert [attempt.why for attempt in c.call.tries] == ["first", "hedge"], "one and no more"
    spoken(c)
    c.b.answer()
    assert (c.winner.worker, plugin.hedges.fired, plugin.hedges.won, plugin.hedges.lost) == (c.b, 1, 1, 0)
    assert c.a.connections.connections[0].closed
    assert c.finish() == [(1, "cancelled"), (2, "won")]


@racing
async def test_the_first_attempt_wins_after_all(course):
    plugin = hedging()
    c = course(plugin).start()
    spoken(c)
    await asyncio.sleep(0.03)
    spoken(c)
    c.a.answer()
    assert (plugin.hedges.fired, plugin.hedges.won, plugin.hedges.lost) == (1, 0, 1)
    assert c.finish() == [(1, "won"), (2, "cancelled")]


@racing
async def test_a_quick_attempt_is_not_hedged(course):
    plugin = hedging(0.02)
    c = course(plugin).start()
    spoken(c)
    c.a.answer()
    await asyncio.sleep(0.04)
    assert plugin.hedges.fired == 0
    assert c.finish() == [(1, "won")]


@racing
async def test_HDG_06_both_fail_and_nobody_has_won(course):
    plugin = hedging()
    c = course(plugin).start()
    spoken(c)
    await asyncio.sleep(0.03)
    spoken(c)
    c.a.status(500)
    c.b.status(400)
    assert c.fault.status == 400
    assert (plugin.hedges.fired, plugin.hedges.won, plugin.hedges.lost) == (1, 0, 0)
    assert c.finish() == [(1, "failed"), (2, "failed")]


@racing
async def test_HDG_07_client_leaves_while_two_run(course):
    c = course(hedging()).start()
    spoken(c)
    await asyncio.sleep(0.03)
    spoken(c)
    c.race.cancel()
    assert all(worker.connections.connections[0].closed for worker in c.workers)
    assert c.finish() == [(1, "cancelled"), (2, "cancelled")]


@pytest.mark.parametrize(
    ("usual", "settings", "stream", "route", "waits"),
    [
        (0.2, {}, True, "chat", 0.2),
        (0.2, {"floor_ms": 30.0}, True, "chat", 0.2),
        (0.01, {"floor_ms": 30.0}, True, "chat", 0.03),
        (0.2, {}, False, "chat", None),
        (0.2, {"unary": True}, False, "chat", 0.2),
        (0.2, {}, False, "embeddings", 0.2),
        (None, {}, True, "chat", None),
        (None, {"unknown": 2.0}, True, "chat", 2.5),
        (None, {"unknown": 2.0}, False, "messages", None),
        (0.2, {"race": False}, True, "chat", None),
    ],
)
def test_patience(usual, settings, stream, route, waits, monkeypatch):
    """What is usual, with a floor; where that is not known, what is said for that, and more for a long prompt."""

    async def body():
        plugin = hedging(usual, **settings)
        c = Course(monkeypatch)
        c.call.stream, c.call.route.name = stream, route
        c.call.chain.timeouts.first_content = lambda size: 30.0 + size / 200
        c.start()
        assert plugin.patience(c.call, c.call.tries) == waits
        c.finish()

    run(body())


@racing
async def test_a_lone_worker_is_waited_for(course):
    plugin = hedging()
    c = course(plugin, workers="a").start()
    assert plugin.patience(c.call, c.call.tries) is None
    c.finish()


def worker_of(c, name, waiting=None, inflight=0, kv_use=None):
    worker = getattr(c, name)
    worker.standing.waiting, worker.standing.kv_use = waiting, kv_use
    worker.inflight += inflight
    return worker


@pytest.mark.parametrize(
    ("told", "hedged"),
    [
        ({}, True),
        ({"inflight": 5}, False),
        ({"waiting": 0, "inflight": 5}, True),
        ({"waiting": 1}, True),
        ({"waiting": 2}, False),
        ({"waiting": 0, "kv_use": 0.97}, False),
    ],
)
def test_not_where_the_others_are_loaded(told, hedged, monkeypatch):
    async def body():
        plugin = hedging()
        c = Course(monkeypatch, plugin)
        worker_of(c, "b", **told)
        c.start()
        await asyncio.sleep(0.03)
        assert len(c.call.tries) == (2 if hedged else 1)
        assert plugin.hedges.refused["loaded"] == (0 if hedged else 1)
        c.b.inflight -= told.get("inflight", 0)
        c.finish()

    run(body())


@racing
async def test_the_second_attempt_goes_to_one_that_is_not_loaded(course):
    c = course(hedging(), workers="abcd")
    worker_of(c, "b", waiting=9)
    worker_of(c, "c", waiting=9)
    c.start()
    await asyncio.sleep(0.03)
    assert [attempt.worker for attempt in c.call.tries] == [c.a, c.d]
    c.finish()


@racing
async def test_HDG_03_what_has_effects_is_not_hedged(course):
    plugin = hedging()
    c = course(plugin)
    c.call.body["store"] = True
    c.start()
    await asyncio.sleep(0.03)
    assert len(c.call.tries) == 1
    assert plugin.hedges.refused["effects"] == 1
    c.finish()


@racing
async def test_no_more_than_its_share(course):
    plugin = hedging(extra=0.25)
    begun = []
    for _ in range(12):
        c = course(plugin).start()
        await asyncio.sleep(0.02)
        begun.append(len(c.call.tries) - 1)
        c.finish()
    assert begun == [0, 0, 0, 1] * 3
    assert (plugin.hedges.fired, plugin.hedges.refused["budget"]) == (3, 9)


def test_a_spent_budget_is_left_to_the_slowest(monkeypatch):
    """A call earns half of one more as it asks."""

    async def body():
        waits = []
        for spent in range(3):
            plugin = hedging(0.2, extra=0.5)
            for _ in range(5):
                plugin._budget.earn(0.0)
            for _ in range(spent):
                assert plugin._budget.spend(0.0)
            c = Course(monkeypatch).start()
            waits.append(plugin.patience(c.call, c.call.tries))
            c.finish()
        assert waits == pytest.approx([0.2, 0.2333, 0.2667], abs=1e-4)

    run(body())


@racing
async def test_the_retry_budget_bounds_it_too(course):
    """Both have to have room, and one that refuses costs the other nothing."""
    plugin = hedging()
    poor = Retry(RetryConfig(budget=BudgetSettings(share=0.0, per_second=0.0)))
    for plugins in ((plugin, poor), (poor, plugin)):
        c = course(*plugins).start()
        await asyncio.sleep(0.02)
        assert len(c.call.tries) == 1
        c.finish()
    assert plugin._budget.spent == 0
    rich, broke = Retry(RetryConfig()), hedging(extra=0.001)
    c = course(rich, broke).start()
    await asyncio.sleep(0.02)
    assert len(c.call.tries) == 1
    assert rich._budget.spent == 0
    c.finish()


@racing
async def test_another_policys_patience_gives_no_second_hedge(course):
    plugin = hedging()
    for _ in range(9):
        plugin._budget.earn(0.0)
    c = course(plugin, policy(patience=lambda call, tries: 0.01), workers="abc").start()
    await asyncio.sleep(0.05)
    assert [attempt.why for attempt in c.call.tries] == ["first", "hedge"]
    c.finish()


@racing
async def test_what_is_usual_is_learned_by_model_and_size(course):
    plugin = Hedge(Config(samples=5))
    kinds = set()
    for size in (100, 100, 100, 100, 100, 1000, 100_000):
        c = course(plugin)
        c.call.size = size
        c.start()
        spoken(c)
        c.a.answer()
        kinds.add(_kind(c.call))
        c.finish()
    assert [size for _, _, size in sorted(kinds)] == [3, 5, 8]
    assert plugin._latencies.usual(("m", "", 3), 3.1) is not None
    assert plugin._latencies.usual(("m", "", 5), 3.1) is None


@racing
async def test_a_hedged_call_counts_with_its_whole_wait(course):
    """Else a worker's slowness would make hedges come sooner and sooner."""
    plugin = hedging(0.02)
    noted = []
    plugin._latencies.note = lambda kind, seconds, now: noted.append(seconds)
    c = course(plugin).start()
    spoken(c)
    await asyncio.sleep(0.04)
    spoken(c)
    c.b.answer()
    assert noted[0] >= 0.035, "not from the second attempt's beginning"
    c.finish()


@racing
async def test_whole_answers_of_text_teach_nothing(course):
    plugin = hedging()
    plugin._latencies.note = lambda *_: pytest.fail("noted")
    c = course(plugin)
    c.call.stream = False
    c.start()
    spoken(c)
    c.a.status(200)
    assert c.winner is not None
    c.finish()


@racing
async def test_many_workers_are_not_all_looked_at(course):
    plugin = hedging()
    c = course(plugin, workers="abcdefghijklmnopqrstuvwxyz")
    assert len(c.workers) > MAX_CANDIDATES * 2
    looked = []
    plugin.hedges._loaded = lambda worker, slow: looked.append(worker) or True
    c.start()
    assert not plugin.hedges._idle_others(c.call, c.call.tries)
    assert len(looked) <= 16
    c.finish()
