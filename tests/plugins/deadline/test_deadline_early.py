"""The plugin `deadline` in a gateway: what it refuses early, by what it has learnt, and what it tells of it."""

from __future__ import annotations

from cases.scene import STREAM, scene
from cases.scripts import silent
from fakes import Connection, Request, run
from tailrace.proxy.outcome import Ending
from timed import WELL, chain, deadline_of, stop_time


def test_what_cannot_be_in_time_is_refused_at_once():
    async def main():
        classes = "- service_class: {names: [interactive, batch]}"
        async with scene(WELL, plugins=chain("[]") + "\n" + classes) as s:
            forecast = deadline_of(s).keeper.forecast
            assert (await s.ask(STREAM)).status == 200
            now = stop_time(s)
            assert forecast.times("m", 100, True, now)[1] > 0.0, "known from the calls before"
            for _ in range(50):
                forecast.note("m", 100, True, 20.0, now)
            before = len(s.upstream.requests)
            answer = await s.ask(STREAM, headers={"x-tailrace-ttft-ms": "9000"})
            assert answer.status == 503
            error = answer.json()["error"]
            assert error["code"] == "deadline_unmeetable"
            assert error["message"].endswith("within its budget of 9000 ms; 20000 ms are usual now.")
            assert answer.header("retry-after") == "20"
            assert len(s.upstream.requests) == before
            assert (await s.outcome(2)).ending is Ending.REFUSED
            assert (await s.ask(STREAM, headers={"x-tailrace-ttft-ms": "50000"})).status == 200
            assert list(deadline_of(s).metrics()) == [("refused_total", {"model": "m", "class": ""}, 1)]

    run(main())


def test_what_is_refused_and_missed_is_told_by_class():
    async def main():
        classes = "- service_class: {names: [interactive, batch], routes: {chat: batch}}"
        async with scene(silent, plugins=chain("[{ttft: 60ms}]", classes)) as s:
            assert (await s.ask(STREAM)).status == 504
            plugin = s.process.service.chain.pipeline.links[2].plugin
            expected = {"what": "first_content", "model": "m", "class": "batch"}
            assert list(plugin.metrics()) == [("missed_total", expected, 1)]

    run(main())


def test_refusing_early_can_be_switched_off():
    async def main():
        async with scene(silent, plugins=chain("[]", more=", refuse_early: false")) as s:
            now = stop_time(s)
            for _ in range(50):
                deadline_of(s).keeper.forecast.note("m", 100, True, 20.0, now)
            answer = await s.ask(STREAM, headers={"x-tailrace-ttft-ms": "20"})
            assert answer.status == 504

    run(main())


def test_what_workers_take_goes_with_the_call():
    async def main():
        async with scene(WELL, plugins=chain("[]")) as s:
            now = stop_time(s)
            for took in (1.0, 2.0) * 20:
                deadline_of(s).keeper.forecast.note("m", 100, True, took, now)
            assert (await s.ask(STREAM, headers={"x-tailrace-ttft-ms": "50000"})).status == 200
            await s.outcome()
            [call] = s.witness.calls
            assert 0.5e9 < call.time.least_ns < 1.5e9
            assert 3.0e9 < call.time.ample_ns < 4.0e9

    run(main())


def test_no_attempt_that_cannot_be_in_time():
    """A policy that would try again is not allowed to, when the budget is nearly over and answers take longer."""

    async def main():
        async def breaks(conn: Connection, request: Request) -> None:
            conn.rst()

        plugins = chain("[{total: 10s}]") + "\n- cases.policies:MoveOn"
        async with scene(breaks, plugins=plugins) as s:
            now = stop_time(s)
            assert (await s.ask(STREAM)).status == 502
            assert len(s.upstream.requests) == 3
            deadline_of(s).keeper.forecast.note("m", 100, True, 50.0, now)
            trend = deadline_of(s).keeper.forecast._trend("m", 100, True)
            assert trend is not None
            trend.tried = 0.0
            assert (await s.ask(STREAM)).status == 502
            assert len(s.upstream.requests) == 4

    run(main())
