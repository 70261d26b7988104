"""What further attempts cost, who pays, and what is free."""

from __future__ import annotations

import asyncio
import logging

import pytest
from fakes import run
from racing import Course, policy, racing
from retrying import http, retrying
from tailrace.plugins.retry import BudgetSettings, Config, Retry
from tailrace.proxy.fault import fallen_silent

pytestmark = pytest.mark.interpreted


@racing
async def test_budget(course):
    """It is a share of the calls; what no worker has seen is free, and so is a rescue."""
    plugin = retrying(budget=BudgetSettings(share=0.5, per_second=0.0))

    def failing():
        c = course(plugin).start()
        c.a.accept()
        c.a.fail(http(500))
        count = len(c.call.tries)
        c.finish()
        return count

    assert [failing() for _ in range(6)] == [1, 2, 1, 2, 1, 2]
    assert {name: value for name, labels, value in plugin.metrics() if labels == {"why": "retry"}} == {
        "refused_total": 3
    }
    free = course(retrying(budget=BudgetSettings(share=0.0, per_second=0.0))).start()
    free.a.refuse()
    assert free.b.inflight == 1
    assert free.recorder.ends == [(1, "failed")]
    plugin_allows = Retry(Config(budget=BudgetSettings(share=0.0, per_second=0.0))).allow
    assert plugin_allows(free.call, free.call.tries, "rescue")
    assert not plugin_allows(free.call, free.call.tries[1:], "fallback")
    free.finish()


def test_an_empty_budget_is_told_of(monkeypatch, caplog):
    async def body():
        c = Course(monkeypatch, retrying(budget=BudgetSettings(share=0.0, per_second=0.0))).start()
        c.a.accept()
        c.a.fail(http(500))
        c.finish()

    with caplog.at_level(logging.WARNING):
        run(body())
    assert "the retry budget is used up: 0 further attempts for the last 1 calls" in caplog.text


@racing
async def test_hedges_are_paid_for_when_they_begin(course):
    hedging = policy(patience=lambda call, tries: 0.005 if len(tries) == 1 else None)
    refusing = policy(allow=lambda call, tries, why: False)
    plugin = retrying(budget=BudgetSettings(share=1.0, per_second=0.0))
    refused = course(plugin, hedging, refusing).start()
    await asyncio.sleep(0.015)
    assert len(refused.call.tries) == 1
    assert plugin._budget.spent == 0
    refused.finish()
    begun = course(plugin, hedging).start()
    await asyncio.sleep(0.015)
    assert len(begun.call.tries) == 2
    assert plugin._budget.spent == 1
    begun.finish()
    plugin._budget.spend(0.0)
    poor = course(retrying(budget=BudgetSettings(share=0.0, per_second=0.0)), hedging).start()
    await asyncio.sleep(0.015)
    assert len(poor.call.tries) == 1
    poor.finish()


@racing
async def test_a_hedge_is_paid_for_once_however_many_workers_refuse_it(course):
    """Each is chosen first, and a policy behind this one may not want it; nothing is paid where nobody is left."""

    async def hedged(wanted):
        plugin = retrying(budget=BudgetSettings(share=1.0, per_second=1.0))
        c = course(
            plugin,
            policy(patience=lambda call, tries: 0.005 if len(tries) == 1 else None),
            policy(on_chosen=lambda call, attempt: attempt.why != "hedge" or attempt.worker.name in wanted),
            workers="abcd",
        ).start()
        await asyncio.sleep(0.015)
        asked = [attempt.worker.name for attempt in c.call.tries]
        c.finish()
        return asked, plugin._budget.spent

    assert await hedged("d") == (["a", "d"], 1)
    assert await hedged("") == (["a"], 0)


@racing
async def test_a_target_that_cannot_be_asked_is_paid_for_once(course):
    plugin = retrying(budget=BudgetSettings(share=0.0, per_second=1.0))
    c = course(plugin, policy(on_chosen=lambda call, attempt: attempt.number == 1)).start()
    c.a.accept()
    c.a.fail(http(500))
    assert c.fault.status == 500
    assert plugin._budget.spent == 1
    assert c.finish() == [(1, "failed")]


@racing
async def test_a_silent_host_is_left_for_the_retry_budget(course):
    c = course(retrying(), workers="ab").start()
    c.a.accept()
    c.race.move(c.call.tries[0], fallen_silent("x"))
    assert c.b.inflight == 1
    c.b.accept()
    c.b.answer()
    assert c.finish() == [(1, "failed"), (2, "won")]
    poor = course(retrying(budget=BudgetSettings(share=0.0, per_second=0.0))).start()
    poor.a.accept()
    poor.race.move(poor.call.tries[0], fallen_silent("x"))
    assert len(poor.call.tries) == 1, "without a budget it waits on"
    poor.a.answer()
    assert poor.finish() == [(1, "won")]


@racing
async def test_a_wait_for_the_only_worker_is_paid_for_once(course):
    """The first target cannot be asked yet, and the one that is named in its place is the same attempt."""
    plugin = retrying(budget=BudgetSettings(share=0.0, per_second=0.1))
    c = course(plugin, workers="a").start()
    c.a.accept()
    c.a.status(503, b"{}", b"retry-after-ms: 30")
    await asyncio.sleep(0.06)
    assert len(c.call.tries) == 2
    assert plugin._budget.spent == 1
    c.finish()


@racing
async def test_a_call_earns_once_though_it_is_chosen_for_again(course):
    plugin = retrying()
    c = course(plugin, policy(on_chosen=lambda call, attempt: attempt.worker.name == "c"), workers="abc").start()
    assert c.c.inflight == 1
    assert plugin._budget.earned == 1
    c.finish()
