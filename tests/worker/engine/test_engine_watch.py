"""What the watch makes of an engine's answers and of their absence."""

import asyncio

import pytest
from engine_doubles import Clock
from fakes import until
from tailrace.worker.engine.client import Unanswered
from tailrace.worker.engine.settings import WatchSettings
from tailrace.worker.engine.state import Model, Phase
from tailrace.worker.engine.watch import Died, EngineWatch

LATE = Unanswered("no answer to /health within 2 s", late=True)
REFUSED = Unanswered("/health: refused")
FAST = WatchSettings(poll=0.001, quiet_poll=0.01, health=0.001, models=0.001, timeout=0.1)


class Script:
    """A client whose answers a test sets; an exception is raised."""

    def __init__(self) -> None:
        self.well = self.once = None
        self.figures: bytes | Exception | None = load(0, 0)
        self.listed: tuple[Model, ...] | None = ()
        self.checks = 0
        self.readings = 0

    async def health(self):
        self.checks += 1
        answer, self.once = self.once or self.well, None
        return self._answer(answer)

    async def metrics(self):
        self.readings += 1
        return self._answer(self.figures)

    async def models(self):
        return self._answer(self.listed)

    def _answer(self, answer):
        if isinstance(answer, Exception):
            raise answer
        return answer


def load(running: int, waiting: int, generated: float = 0.0, kv_use: float = 0.0) -> bytes:
    return (
        f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
        f"vllm:generation_tokens_total {generated}\nvllm:kv_cache_usage_perc {kv_use}\n"
    ).encode()


class Watched:
    """A watch in the middle of an engine's life: `async with Watched() as it`."""

    def __init__(self, settings: WatchSettings = FAST) -> None:
        self.client = Script()
        self.clock = Clock()
        self.states = []
        self.watch = EngineWatch(self.client, settings, self.states.append, self.clock)

    @property
    def state(self):
        return self.watch.state

    async def __aenter__(self) -> "Watched":
        self.watch.begin()
        self.watch.change(phase=Phase.READY)
        self.task = asyncio.ensure_future(self.watch.follow())
        return self

    async def __aexit__(self, *_) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def more(self, count: str, by: int = 3) -> None:
        """Wait until the client was asked some more times."""
        before = getattr(self.client, count)
        await until(lambda: getattr(self.client, count) >= before + by)


def test_each_change_of_the_load_is_told_once():
    async def run() -> None:
        async with Watched() as it:
            await it.more("readings")
            it.states.clear()
            it.client.figures = load(3, 1, kv_use=0.4567)
            await until(lambda: it.state.running == 3)
            assert (it.state.waiting, it.state.kv_use) == (1, 0.46)
            await it.more("readings", 10)
            assert len(it.states) == 1

    asyncio.run(run())


def test_tokens_per_second_approach_the_true_rate():
    async def run() -> None:
        async with Watched() as it:
            made = 0.0
            for _ in range(80):
                made += 10
                it.clock.now += 0.1
                it.client.figures = load(1, 0, generated=made)
                await it.more("readings", 2)
            assert it.state.tokens_per_second == pytest.approx(100, rel=0.3)

    asyncio.run(run())


def test_a_restarted_counter_is_no_negative_rate():
    async def run() -> None:
        async with Watched() as it:
            for generated in (0, 500):
                it.clock.now += 1
                it.client.figures = load(1, 0, generated=generated)
                await it.more("readings")
            rate = it.state.tokens_per_second
            it.clock.now += 1
            it.client.figures = load(1, 0, generated=1)
            await it.more("readings")
            assert 0 < it.state.tokens_per_second < rate

    asyncio.run(run())


@pytest.mark.parametrize("figures", [None, b"nothing of interest", Unanswered("/metrics: cut")])
def test_missing_metrics_are_not_death(figures):
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = figures
            await it.more("checks", 10)
            await it.more("readings", 3)
            assert it.state.ready
            assert it.state.sampled in (0, 1000.0)

    asyncio.run(run())


def test_adapters_are_seen_and_an_engine_that_will_not_tell_keeps_the_last_list():
    async def run() -> None:
        async with Watched() as it:
            models = (Model(id="base"), Model(id="lora", parent="base"))
            it.client.listed = models
            await until(lambda: it.state.models == models)
            it.client.listed = None
            await it.more("checks", 5)
            it.client.listed = LATE
            await it.more("checks", 5)
            assert it.state.models == models

    asyncio.run(run())


def test_a_bad_answer_is_doubted_at_once_and_death_after_three():
    async def run() -> None:
        async with Watched() as it:
            it.client.well = "/health answers 503"
            with pytest.raises(Died, match="503, 3 times"):
                await it.task
            assert [(state.phase, state.reason) for state in it.states[-2:]] == [
                (Phase.SUSPECT, "/health answers 503"),
                (Phase.DEAD, "/health answers 503, 3 times"),
            ]

    asyncio.run(run())


def test_a_doubted_engine_that_answers_again_is_ready_again():
    async def run() -> None:
        settings = WatchSettings(poll=0.001, health=0.001, failures=100_000)
        async with Watched(settings) as it:
            it.client.well = REFUSED
            await until(lambda: it.state.phase is Phase.SUSPECT)
            assert not it.state.ready
            it.client.well = None
            await until(lambda: it.state.ready)
            assert it.state.reason == ""

    asyncio.run(run())


def test_a_frozen_engine_is_doubted_and_dead_after_three_late_answers():
    async def run() -> None:
        async with Watched() as it:
            it.client.well = it.client.figures = LATE
            with pytest.raises(Died, match="no answer to /health within 2 s, 3 times"):
                await it.task
            assert [state.phase for state in it.states].count(Phase.SUSPECT) == 1

    asyncio.run(run())


def test_one_late_answer_is_no_reason_for_doubt():
    async def run() -> None:
        async with Watched() as it:
            for _ in range(3):
                it.client.once = LATE
                await it.more("checks")
            assert all(state.phase is not Phase.SUSPECT for state in it.states)

    asyncio.run(run())


def test_an_engine_too_busy_to_answer_is_kept_while_its_streams_go_on():
    async def run() -> None:
        async with Watched() as it:
            real = it.client.health

            async def late_while_streaming():
                it.clock.now += 2
                it.watch.progress.made()
                return await real()

            it.client.health = late_while_streaming
            it.client.well = LATE
            await it.more("checks", 10)
            assert it.state.ready

    asyncio.run(run())


def test_metrics_that_fail_bring_the_health_check_forward():
    async def run() -> None:
        settings = WatchSettings(poll=0.001, quiet_poll=0.001, health=3600.0)
        async with Watched(settings) as it:
            await it.more("readings")
            it.client.well = it.client.figures = REFUSED
            await until(lambda: it.state.phase is Phase.SUSPECT)

    asyncio.run(run())


def test_work_without_progress_makes_suspect_then_dead_though_health_is_well():
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = load(2, 0, generated=5)
            await until(lambda: it.state.running == 2)
            it.clock.now += 29
            await it.more("checks")
            assert it.state.ready
            it.clock.now += 2
            await until(lambda: it.state.phase is Phase.SUSPECT)
            assert it.state.reason == "no progress with work in it for 30 s"
            it.clock.now += 100
            with pytest.raises(Died, match="no progress for 131 s"):
                await it.task

    asyncio.run(run())


@pytest.mark.parametrize("sign", ["tokens", "bytes"])
def test_any_progress_ends_the_doubt(sign):
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = load(2, 0, generated=5)
            await until(lambda: it.state.running == 2)
            it.clock.now += 31
            await until(lambda: it.state.phase is Phase.SUSPECT)
            if sign == "tokens":
                it.client.figures = load(2, 0, generated=6)
            else:
                it.watch.progress.made()
            await until(lambda: it.state.ready)

    asyncio.run(run())


def test_a_request_sent_into_a_frozen_engine_is_missed_though_its_metrics_show_none():
    async def run() -> None:
        async with Watched() as it:
            it.clock.now += 1000
            await it.more("checks")
            assert it.state.ready
            it.watch.progress.entered()
            it.clock.now += 31
            await until(lambda: it.state.phase is Phase.SUSPECT)
            it.watch.progress.left()
            await until(lambda: it.state.ready)

    asyncio.run(run())


def test_a_stall_is_never_judged_where_that_is_off():
    async def run() -> None:
        settings = WatchSettings(poll=0.001, health=0.001, stall=0, hung=0)
        async with Watched(settings) as it:
            it.client.figures = load(2, 0)
            await until(lambda: it.state.running == 2)
            it.clock.now += 1e6
            await it.more("checks")
            assert it.state.ready

    asyncio.run(run())


def test_a_quiet_engine_is_asked_less_and_at_once_when_work_comes():
    async def run() -> None:
        settings = WatchSettings(poll=0.0005, quiet_poll=3600.0, health=0.001)
        async with Watched(settings) as it:
            await until(lambda: it.watch._quiet and it.client.readings > 5)
            await asyncio.sleep(0.05)
            before = it.client.readings
            it.client.figures = load(1, 0)
            it.watch.stir()
            await until(lambda: it.state.running == 1)
            assert it.client.readings > before

    asyncio.run(run())


def test_an_engine_that_holds_a_request_of_ours_is_asked_at_the_busy_pace_whatever_it_says():
    async def run() -> None:
        settings = WatchSettings(poll=0.0005, quiet_poll=3600.0, health=0.001)
        async with Watched(settings) as it:
            it.watch.progress.entered()
            await it.more("readings", 50)

    asyncio.run(run())


def test_readings_that_bring_all_metrics_are_spaced_out():
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = load(1, 0) + b"x" * 40_000_000
            await until(lambda: it.state.running == 1)
            before = it.client.readings
            await it.more("checks", 20)
            assert it.client.readings == before

    asyncio.run(run())


def test_death_is_told_once_and_a_new_life_forgets_the_old_load():
    async def run() -> None:
        async with Watched() as it:
            it.client.figures = load(3, 0)
            await until(lambda: it.state.running == 3)
            since = it.state.since
            it.clock.now += 5
            it.watch.died("its process ended")
            assert it.state.dead
            assert (it.state.running, it.state.since) == (0, since + 5)
            told = len(it.states)
            it.watch.died("again")
            assert len(it.states) == told
            with pytest.raises(Died, match="its process ended"):
                await it.task
            it.watch.begin()
            assert it.state.phase is Phase.STARTING
            assert it.state.sampled == 0

    asyncio.run(run())


def test_work_is_cancelled_by_death():
    async def run() -> None:
        watch = EngineWatch(Script(), FAST, lambda state: None, Clock())
        watch.begin()
        cancelled = []

        async def work() -> None:
            try:
                await asyncio.sleep(600)
            finally:
                cancelled.append(True)

        task = asyncio.ensure_future(watch.unless_dead(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        watch.died("gone")
        with pytest.raises(Died, match="gone"):
            await task
        assert cancelled

        watch.begin()
        task = asyncio.ensure_future(watch.unless_dead(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(cancelled) == 2

    asyncio.run(run())


def test_a_listener_that_raises_does_not_stop_the_watch(caplog):
    def broken(state) -> None:
        raise RuntimeError("listener")

    watch = EngineWatch(Script(), FAST, broken, Clock())
    watch.change(running=1)
    assert watch.state.running == 1
    assert "was not taken" in caplog.text
