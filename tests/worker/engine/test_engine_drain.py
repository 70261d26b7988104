"""An engine that drains before it goes."""

import asyncio
import os
import signal

import pytest
from engine_launched import Told, launched, post
from engine_watched import REFUSED, Watched, load
from fakes import until
from tailrace.worker.engine.launch import Engine, engine
from tailrace.worker.engine.state import Phase


def test_a_drain_waits_until_the_engine_says_that_it_is_empty(fake_vllm):
    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), lambda state: None) as it:
            await until(lambda: it.state.ready)
            await post(it, "/running/2")
            assert not await it.drain(0.05)
            assert it.state.draining
            assert it.state.phase is Phase.READY
            assert not it.state.ready
            draining = asyncio.ensure_future(it.drain(20.0))
            await post(it, "/running/0")
            assert await draining

    asyncio.run(run())


def test_a_drain_waits_for_requests_that_the_engine_has_not_counted_yet(fake_vllm):
    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), lambda state: None) as it:
            await until(lambda: it.state.ready)
            it.request_sent()
            assert not await it.drain(0.05)
            it.bytes_heard()
            it.request_over()
            assert await it.drain(20.0)

    asyncio.run(run())


def test_an_engine_that_dies_while_it_drains_stays_dead(fake_vllm):
    told = Told()

    async def run() -> None:
        async with engine(launched(fake_vllm, "serves"), told) as it:
            await until(lambda: it.state.ready)
            await it.drain(20.0)
            os.kill(it.state.pid, signal.SIGKILL)
            await until(lambda: it.state.failures == 1)
            await asyncio.sleep(0.05)
            assert it.state.dead
            assert await it.drain(20.0)

    asyncio.run(run())
    assert told.phases(but="suspect") == ["starting", "warming", "ready", "dead"]


class _SlowFigures(Watched):
    """Its engine answers a question for the load only when the test says so, with what is then set."""

    def __init__(self) -> None:
        super().__init__()
        self.client.metrics = self._answer_late
        self.engine = Engine("http://engine", None, self.watch, 0.001)
        self._questions: list[asyncio.Future] = []

    async def _answer_late(self):
        self._questions.append(asyncio.get_running_loop().create_future())
        return await self._questions[-1]

    async def asked(self) -> asyncio.Future:
        await until(lambda: self._questions)
        return self._questions.pop(0)

    async def begin_to_drain(self) -> asyncio.Future:
        self.clock.now += 1.0
        draining = asyncio.ensure_future(self.engine.drain(20.0))
        await until(lambda: self.state.draining)
        self.clock.now += 1.0
        return draining


def _answer(question: asyncio.Future, what) -> None:
    question.set_exception(what) if isinstance(what, Exception) else question.set_result(what)


@pytest.mark.parametrize("before", [[], [load(0, 0)]], ids=["never-read", "read-before"])
def test_figures_that_were_asked_for_before_a_drain_do_not_end_it(before):
    async def run() -> None:
        async with _SlowFigures() as it:
            for figures in before:
                _answer(await it.asked(), figures)
            early = await it.asked()
            draining = await it.begin_to_drain()
            _answer(early, load(0, 0))
            late = await it.asked()
            await asyncio.sleep(0.005)
            assert not draining.done()
            _answer(late, load(2, 0))
            later = await it.asked()
            await asyncio.sleep(0.005)
            assert not draining.done()
            _answer(later, load(0, 0))
            assert await draining

    asyncio.run(run())


@pytest.mark.parametrize("told", [None, b"other_figures 1\n", REFUSED], ids=["none", "others", "no-answer"])
def test_an_engine_that_tells_no_load_is_drained_once_it_was_asked(told):
    async def run() -> None:
        async with _SlowFigures() as it:
            early = await it.asked()
            draining = await it.begin_to_drain()
            _answer(early, told)
            late = await it.asked()
            assert not draining.done()
            _answer(late, told)
            assert await draining

    asyncio.run(run())


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.WARMING])
def test_an_engine_that_is_not_ready_yet_has_nothing_to_drain(phase):
    async def run() -> None:
        async with _SlowFigures() as it:
            it.watch.change(phase=phase)
            assert await it.engine.drain(20.0)

    asyncio.run(run())
