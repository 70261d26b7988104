"""The limit of a wait for first content that moves a call instead of racing it."""

from __future__ import annotations

import asyncio

import pytest
from fakes import run
from hedging import hedging, spoken
from racing import Course, racing
from tailrace.plugins.hedge.settings import FirstToken

pytestmark = pytest.mark.interpreted


def limiting(limit=0.01, **settings):
    return hedging(limit / 2, race=False, first_token_timeout=FirstToken(times=2.0, at_least=0.001), **settings)


@racing
async def test_first_token_timeout_moves_the_call_once(course):
    plugin = limiting()
    c = course(plugin, workers="abc").start()
    spoken(c)
    await asyncio.sleep(0.03)
    assert [attempt.why for attempt in c.call.tries] == ["first", "retry"]
    assert c.call.tries[0].fault.kind == "first_token_timeout"
    assert c.a.connections.connections[0].closed
    spoken(c)
    await asyncio.sleep(0.03)
    assert len(c.call.tries) == 2, "the second is waited for"
    c.b.answer()
    assert (plugin.hedges.moved, plugin.hedges.fired) == (1, 0)
    assert c.finish() == [(1, "failed"), (2, "won")]


@pytest.mark.parametrize("how", ["quick", "effects", "lone", "left", "lost"])
def test_first_token_timeout_that_does_not_move(how, monkeypatch):
    async def body():
        plugin = limiting()
        c = Course(monkeypatch, plugin, workers="a" if how == "lone" else "ab")
        if how == "effects":
            c.call.body["store"] = True
        c.start()
        spoken(c)
        if how == "quick":
            c.a.answer()
        elif how == "left":
            c.race.cancel()
        elif how == "lost":
            c.a.lose()
        await asyncio.sleep(0.03)
        assert len(c.call.tries) == 1
        assert plugin.hedges.moved == 0
        c.finish()

    run(body())


@racing
async def test_without_what_is_usual_there_is_no_such_limit(course):
    plugin = hedging(None, race=False, first_token_timeout=FirstToken(at_least=0.005))
    c = course(plugin).start()
    await asyncio.sleep(0.02)
    assert len(c.call.tries) == 1
    c.finish()


@racing
async def test_a_raced_call_may_be_moved_as_well(course):
    plugin = hedging(0.01, first_token_timeout=FirstToken(times=3.0, at_least=0.001))
    c = course(plugin, workers="abc").start()
    await asyncio.sleep(0.06)
    assert [attempt.why for attempt in c.call.tries] == ["first", "hedge", "retry"]
    c.c.accept()
    c.c.answer()
    assert c.finish() == [(1, "failed"), (2, "cancelled"), (3, "won")]


@racing
async def test_no_timer_is_left_behind_a_commit(course):
    c = course(limiting(60.0)).start()
    (key,) = c.call.state
    spoken(c)
    assert not c.call[key].cancelled()
    c.a.answer()
    assert c.call[key].cancelled()
    c.finish()
