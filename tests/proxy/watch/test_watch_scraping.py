"""The load of bare engines, from their metrics: read at an interval, bounded, and unknown where it cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import Connection, Request, Upstream, answer, json_answer, run, until
from sidecars import simulated
from tailrace.proxy.standing import Standing
from tailrace.proxy.sweep import Clock
from tailrace.proxy.watch import scraping, watcher
from tailrace.proxy.watch.asked import Answer
from tailrace.proxy.watch.exposition import FILTERED, WHOLE
from tailrace.proxy.watch.feed import PATH
from tailrace.proxy.watch.scraping import EVERY, SELDOM, Scraper
from tailrace.worker.sim import ManualClock
from watched import chat, watching, worker_of

BUSY = (
    b"# HELP vllm:num_requests_running x\n"
    b'vllm:num_requests_running{model_name="m"} 7.0\nvllm:num_requests_waiting{model_name="m"} 3.0\n'
    b'vllm:kv_cache_usage_perc{model_name="m"} 0.25\nvllm:generation_tokens_total{model_name="m"} 100.0\n'
)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "EVERY", 0.01)
    monkeypatch.setattr(watcher, "POLL", 0.02)


class Engine:
    """A bare engine whose metrics are as told: a whole answer, or None for none at all."""

    def __init__(self, metrics: bytes | None = None, *, filters: bool = True) -> None:
        self.metrics = metrics
        self.filters = filters
        self.paths: list[str] = []

    async def __call__(self, conn: Connection, request: Request) -> None:
        self.paths.append(request.target)
        if request.target == PATH:
            await conn.send(json_answer({}, 404))
        elif not request.target.startswith(WHOLE):
            await conn.send(json_answer({"data": []}))
        elif request.target == FILTERED and not self.filters:
            await conn.send(json_answer({}, 404))
        elif self.metrics is None:
            await conn.wait_closed()
        else:
            await conn.send(self.metrics)


def exposition(text: bytes) -> bytes:
    return answer(200, text, content_type="text/plain")


@pytest.mark.usefixtures("often")
def test_an_engine_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        clock = ManualClock()
        async with simulated(clock, ttft_ms=1000, itl_ms=10, max_num_seqs=1) as sim, watching(sim.url) as process:
            standing = worker_of(process).standing
            await until(lambda: standing.running == 0)
            calls = [asyncio.ensure_future(chat(process)) for _ in range(3)]
            await until(lambda: (standing.running, standing.waiting) == (1, 2))
            for call in calls:
                call.cancel()
            await until(lambda: (standing.running, standing.waiting) == (0, 0))

    run(body())


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("filters", [True, False], ids=["names asked for", "all or nothing"])
def test_it_is_asked_for_little_where_it_can_give_little(filters: bool) -> None:
    async def body() -> None:
        engine = Engine(exposition(BUSY), filters=filters)
        async with Upstream(engine) as upstream, watching(upstream.url) as process:
            standing = worker_of(process).standing
            await until(lambda: standing.running is not None)
            assert (standing.running, standing.waiting, standing.kv_use) == (7, 3, 0.25)
            await until(lambda: sum(path.startswith(WHOLE) for path in engine.paths) > 4)
        asked = [path for path in engine.paths if path.startswith(WHOLE)]
        # Once is enough to know.
        assert set(asked[1:]) == {FILTERED if filters else WHOLE}

    run(body())


@pytest.mark.usefixtures("often")
def test_a_load_that_is_not_told_any_more_is_unknown_soon_and_the_worker_stays() -> None:
    async def body() -> None:
        engine = Engine(exposition(BUSY))
        async with Upstream(engine) as upstream, watching(upstream.url, more="stale: 0.6\n") as process:
            worker = worker_of(process)
            await until(lambda: worker.standing.running == 7)
            engine.metrics = None
            # Health checks go on to be answered, which says nothing of the load.
            await until(lambda: not worker.standing.load_known)
            assert worker.eligible
            engine.metrics = exposition(BUSY)
            await until(lambda: worker.standing.running == 7)

    run(body())


class Told:
    """What a scraper is told in place of an engine's answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.answers = list(answers)
        self.paths: list[str] = []
        self.clock = Clock(100.0)
        monkeypatch.setattr(scraping, "ask", self._ask)

    async def _ask(self, _worker: Any, path: str, _limit: float) -> Any:
        self.paths.append(path)
        told = self.answers.pop(0)
        if isinstance(told, Exception):
            raise told
        return told


def scraper(told: Told, worker: Any) -> Scraper:
    return Scraper(worker, told.clock, lambda: 0.5)


def pauses(told: Told, worker: Any, count: int) -> list[float]:
    async def body() -> list[float]:
        it = scraper(told, worker)
        return [await it._read() for _ in range(count)]

    return asyncio.run(body())


class OneWorker:
    """As much of a worker as a scraper knows."""

    def __init__(self) -> None:
        self.name = "w"
        self.standing = Standing()


def test_readings_are_spaced_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    little = scraping_answer(BUSY)
    much = scraping_answer(BUSY + b"#" * 48_000)
    assert pauses(Told(monkeypatch, little, much), OneWorker(), 2) == [EVERY, pytest.approx(0.97, abs=0.01)]


def test_what_fails_is_asked_less_and_less_and_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    silence = scraping.Unanswered("late")
    told = Told(monkeypatch, *[silence] * 5, scraping_answer(b"other 1\n"), scraping_answer(BUSY), silence)
    assert pauses(told, OneWorker(), 8) == [1.0, 2.0, 4.0, SELDOM, SELDOM, SELDOM, EVERY, 1.0]


def test_how_old_a_reading_is_counts_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    worker = OneWorker()

    async def late(_worker: Any, _path: str, _limit: float) -> Any:
        told.clock.now += 1.5
        return scraping_answer(BUSY)

    monkeypatch.setattr(scraping, "ask", late)
    pauses(told, worker, 1)
    assert worker.standing.sampled == 100.0


def test_the_token_rate_is_that_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, scraping_answer(BUSY), scraping_answer(BUSY.replace(b"100.0", b"150.0")))
    worker = OneWorker()

    async def body() -> None:
        it = scraper(told, worker)
        await it._read()
        assert worker.standing.tokens_per_second is None
        told.clock.now += 2.0
        await it._read()
        assert worker.standing.tokens_per_second == 25.0

    asyncio.run(body())


def scraping_answer(text: bytes) -> Any:
    return Answer(200, text)
