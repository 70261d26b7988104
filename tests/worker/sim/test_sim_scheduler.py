"""Queueing and timing, on a clock that the test moves."""

from random import Random
from typing import Any

import pytest
from tailrace.worker.sim import Fault, ManualClock, SimSettings
from tailrace.worker.sim.beats import Beats
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.sequence import Sampling, Sequence


class Listener:
    """Notes when each token and each end came."""

    def __init__(self, clock: ManualClock, log: list[tuple[str, float, str]], name: str) -> None:
        self.clock, self.log, self.name = clock, log, name
        self.begun = clock.now()

    def note(self, what: str) -> None:
        self.log.append((self.name, round((self.clock.now() - 1000) * 1000, 6), what))

    def on_token(self, seq: Sequence, token: int) -> None:
        self.note("token")

    def on_finish(self, seq: Sequence) -> None:
        self.note(str(seq.finish_reason))

    def on_strike(self, seq: Sequence, fault: Fault) -> None:
        self.note(fault.fail)

    def on_engine_death(self) -> None:
        self.note("dead")


class Bench:
    """A scheduler on a manual clock, and what came out of it."""

    def __init__(self, **knobs: Any) -> None:
        settings = SimSettings(**({"ttft_ms": 20, "itl_ms": 10, "prefill_tokens_per_s": 0} | knobs))
        self.clock = ManualClock()
        self.metrics = Metrics(settings.max_model_len)
        self.scheduler = Beats(settings, self.clock, self.metrics, Random(1))
        self.log: list[tuple[str, float, str]] = []

    def submit(self, name: str, tokens: int = 3, prompt: int = 5, priority: int = 0, **more: Any) -> Sequence:
        sampling = Sampling(max_tokens=tokens, greedy=True, priority=priority)
        seq = Sequence([10 + n % 100 for n in range(prompt)], sampling, Listener(self.clock, self.log, name), **more)
        self.scheduler.submit([seq])
        return seq

    def advance(self, ms: float) -> None:
        self.clock.advance(ms / 1000)

    def times(self, name: str, what: str = "token") -> list[float]:
        return [at for who, at, said in self.log if who == name and said == what]

    def counts(self) -> tuple[int, int]:
        return self.scheduler.running, self.scheduler.waiting


def test_first_token_after_ttft_then_one_every_beat() -> None:
    bench = Bench()
    bench.submit("a")
    bench.advance(19.999)
    assert bench.times("a") == []
    bench.advance(100)
    assert bench.times("a") == [20, 30, 40]
    assert bench.times("a", "length") == [40]
    assert bench.counts() == (0, 0)


def test_sequences_run_side_by_side_each_on_its_own_beat() -> None:
    bench = Bench()
    bench.submit("a")
    bench.advance(3)
    bench.submit("b")
    bench.advance(100)
    assert bench.times("a") == [20, 30, 40]
    assert bench.times("b") == [23, 33, 43]


def test_queue_is_first_in_first_out() -> None:
    bench = Bench(max_num_seqs=1)
    for name in "abc":
        bench.submit(name)
    assert bench.counts() == (1, 2)
    bench.advance(1000)
    assert [bench.times(name)[0] for name in "abc"] == [20, 60, 100]
    assert bench.metrics.queue.sum == pytest.approx(0.040 + 0.080)


def test_priority_is_obeyed_only_where_the_policy_says_so() -> None:
    for policy, order in (("priority", "acb"), ("fcfs", "abc")):
        bench = Bench(max_num_seqs=1, scheduling_policy=policy)
        bench.submit("a")
        bench.submit("b", priority=5)
        bench.submit("c", priority=-5)
        bench.advance(1000)
        assert "".join(dict.fromkeys(name for name, _, _ in bench.log)) == order


def test_prefill_is_shared_and_takes_its_time() -> None:
    bench = Bench(prefill_tokens_per_s=1000)
    bench.submit("a", prompt=30)
    bench.submit("b", prompt=10)
    bench.advance(1000)
    assert bench.times("a")[0] == 30 + 20
    assert bench.times("b")[0] == 30 + 10 + 20


def test_cached_blocks_cost_no_prefill() -> None:
    bench = Bench(prefill_tokens_per_s=1000, block_size=10)
    first = bench.submit("a", prompt=45)
    bench.advance(1000)
    begun = bench.clock.now()
    second = bench.submit("b", prompt=45)
    bench.advance(1000)
    assert (first.cached, first.created) == (0, 40)
    assert (second.cached, second.created) == (40, 0)
    assert bench.times("b")[0] == pytest.approx((begun - 1000) * 1000 + 5 + 20)
    assert (bench.metrics.prompt_tokens, bench.metrics.cached_tokens) == (90, 40)


def test_a_prompt_is_never_cached_to_its_last_token() -> None:
    bench = Bench(block_size=10)
    bench.submit("a", prompt=40)
    bench.advance(1000)
    assert bench.submit("b", prompt=40).cached == 30


def test_adapters_do_not_share_blocks() -> None:
    bench = Bench(block_size=10)
    bench.submit("a", prompt=40)
    bench.advance(1000)
    assert bench.submit("b", prompt=40, cache_salt=9).cached == 0


def test_cache_forgets_the_least_recently_used_and_of_those_the_end() -> None:
    bench = Bench(block_size=10, num_gpu_blocks=5)
    bench.submit("a", prompt=25, tokens=1)
    bench.advance(1000)
    bench.submit("b", prompt=45, tokens=1, cache_salt=1)
    bench.advance(1000)
    assert bench.submit("c", prompt=25, tokens=1).cached == 10
    bench.advance(1000)
    assert bench.submit("d", prompt=45, cache_salt=1).cached == 30


def test_full_kv_cache_makes_the_next_one_wait() -> None:
    bench = Bench(block_size=10, num_gpu_blocks=6)
    bench.submit("a", prompt=40)
    bench.submit("b", prompt=40, cache_salt=1)
    assert bench.counts() == (1, 1)
    assert bench.scheduler.kv_usage == pytest.approx(4 / 6)
    bench.advance(1000)
    assert bench.times("b")[0] == 40 + 20


def test_cancelled_sequences_make_room_at_once() -> None:
    bench = Bench(max_num_seqs=1)
    running, waiting, last = bench.submit("a", tokens=100), bench.submit("b"), bench.submit("c")
    bench.advance(25)
    bench.scheduler.cancel(waiting)
    assert bench.counts() == (1, 1)
    bench.scheduler.cancel(running)
    assert bench.counts() == (1, 0)
    bench.advance(1000)
    assert bench.times("a") == [20]
    assert bench.times("b") == []
    assert bench.times("c") == [45, 55, 65]
    for seq in (running, waiting, last):
        bench.scheduler.cancel(seq)
    assert bench.counts() == (0, 0)
    assert bench.metrics.finish_reasons == {"length": 1}


def test_queue_limit_counts_running_and_waiting() -> None:
    bench = Bench(max_num_seqs=1, max_num_queued_reqs=2)
    assert bench.scheduler.fits(2)
    bench.submit("a")
    bench.submit("b")
    assert not bench.scheduler.fits(1)
    bench.advance(1000)
    assert bench.scheduler.fits(2)
    assert not bench.scheduler.fits(3)


def test_late_wake_up_says_all_that_is_due() -> None:
    bench = Bench(itl_ms=10)
    seq = bench.submit("a", tokens=10)
    bench.advance(20)
    # The process was busy for 35 ms: the clock jumps, and the timer comes late.
    bench.clock._now += 0.035
    bench.advance(0)
    assert len(seq.ids) == 1 + 3
    assert bench.metrics.iteration.buckets[:2] == [1, 1]  # one step of one token, one of three
    assert (bench.metrics.itl.count, bench.metrics.itl.sum) == (3, pytest.approx(0.035))
    bench.advance(5)
    assert len(seq.ids) == 1 + 4


def test_without_a_beat_tokens_come_in_bursts_that_let_others_in() -> None:
    bench = Bench(itl_ms=0, ttft_ms=0)
    bench.submit("a", tokens=40)
    bench.submit("b", tokens=40)
    bench.advance(0)
    assert len(bench.times("a")) == len(bench.times("b")) == 40
    order = [name for name, _, _ in bench.log]
    assert order.index("b") < 17


def test_slow_sequence_takes_its_factor_longer() -> None:
    bench = Bench(prefill_tokens_per_s=1000)
    seq = Sequence([5] * 10, Sampling(max_tokens=3), Listener(bench.clock, bench.log, "a"))
    seq.slow = 3
    bench.scheduler.submit([seq])
    bench.advance(1000)
    assert bench.times("a") == [90, 120, 150]


def test_jitter_moves_the_first_token_only() -> None:
    bench = Bench(ttft_jitter=0.5)
    bench.submit("a")
    bench.advance(1000)
    first, second, third = bench.times("a")
    assert first != 20
    assert (second - first, third - second) == pytest.approx((10, 10))


def test_struck_sequence_falls_silent_and_stays_running() -> None:
    bench = Bench()
    seq = Sequence([5], Sampling(max_tokens=9), Listener(bench.clock, bench.log, "a"))
    seq.strike(Fault(fail="stall", after_tokens=2))
    bench.scheduler.submit([seq])
    bench.advance(1000)
    assert bench.times("a") == [20, 30]
    assert bench.times("a", "stall") == [40]
    assert bench.counts() == (1, 0)
    bench.scheduler.cancel(seq)
    assert bench.counts() == (0, 0)


def test_frozen_engine_says_nothing_and_keeps_everything() -> None:
    bench = Bench(max_num_seqs=1)
    bench.submit("a", tokens=100)
    bench.advance(35)
    bench.scheduler.freeze()
    bench.submit("b")
    bench.advance(1000)
    assert bench.times("a") == [20, 30]
    assert bench.counts() == (1, 1)


def test_killed_engine_loses_everything() -> None:
    bench = Bench(max_num_seqs=1)
    lost = [bench.submit("a", tokens=100), bench.submit("b")]
    bench.advance(25)
    assert bench.scheduler.kill() == lost
    bench.advance(1000)
    assert bench.times("a") == [20]
    assert bench.counts() == (0, 0)


def test_metrics_tell_what_happened() -> None:
    bench = Bench(max_num_seqs=1, prefill_tokens_per_s=1000)
    bench.submit("a", prompt=10)
    bench.submit("b", prompt=10, cache_salt=1)
    bench.advance(1000)
    counted = bench.metrics
    assert counted.generation_tokens == 6
    assert counted.finish_reasons == {"length": 2}
    assert (counted.ttft.count, counted.ttft.sum) == (2, pytest.approx(0.030 + 0.050 + 0.030))
    assert (counted.itl.count, counted.itl.sum) == (4, pytest.approx(0.040))
    assert counted.e2e.sum == pytest.approx(0.050 + 0.100)
    assert counted.queue.sum == pytest.approx(0.050)
    assert counted.prefill.sum == pytest.approx(0.060)
    assert counted.decode.sum == pytest.approx(0.040)
    assert counted.inference.sum == pytest.approx(0.100)
    assert counted.per_token.sum == pytest.approx(0.020)
    assert counted.iteration.sum == 6
    assert (counted.request_prompt.sum, counted.request_generation.sum) == (20, 6)


def test_paused_engine_computes_no_prompt() -> None:
    bench = Bench(prefill_tokens_per_s=1000)
    bench.submit("a", prompt=30)
    bench.advance(10)
    bench.scheduler.pause()
    bench.advance(1000)
    bench.submit("b", prompt=10)
    bench.scheduler.resume()
    bench.advance(1000)
    assert (bench.times("a")[0], bench.times("b")[0]) == (1050, 1060)
