"""Steps of continuous batching: how long they take, and who is in them."""

import pytest
from batch_bench import Bench
from tailrace.worker.sim import Fault


def test_prompt_first_then_a_token_every_step() -> None:
    bench = Bench()
    bench.submit("a", prompt=5)
    bench.advance(1000)
    assert bench.times("a") == [15, 26, 37]
    assert bench.times("a", "length") == [37]
    assert bench.counts() == (0, 0)
    assert bench.scheduler.kv_usage == 0


def test_steps_grow_with_the_answers_in_them() -> None:
    bench = Bench()
    for name in "abc":
        bench.submit(name, prompt=5)
    bench.advance(1000)
    # The first was on its way as the others came: theirs are computed beside its second token.
    assert bench.times("a") == [15, 15 + 21, 15 + 21 + 13]
    assert bench.times("b") == bench.times("c") == [36, 36 + 13, 49 + 12]


def test_steps_grow_with_the_tokens_held() -> None:
    short, long = Bench(decode_ms_per_1k_kv=100.0), Bench(decode_ms_per_1k_kv=100.0)
    short.submit("a", prompt=10)
    long.submit("a", prompt=90)
    for bench, first, held in ((short, 20, 10), (long, 100, 90)):
        bench.advance(1000)
        assert bench.times("a") == pytest.approx([first, first + 11 + held / 10, first + 22 + (2 * held + 1) / 10])


def test_attention_makes_long_prompts_dearer_than_many_short_ones() -> None:
    bench = Bench(prefill_ms_per_1k_at_1k=1000.0, max_num_batched_tokens=1000)
    bench.submit("a", prompt=600, tokens=1)
    bench.advance(10_000)
    assert bench.times("a") == [10 + 600 + 600 * 300 / 1000]


def test_long_prompt_is_computed_in_pieces_beside_the_answers() -> None:
    bench = Bench(max_num_batched_tokens=20, max_num_seqs=8)
    bench.submit("a", prompt=5, tokens=9)
    bench.advance(15)
    bench.submit("b", prompt=50)
    bench.advance(10_000)
    # Its pieces have what the answer leaves of the budget: 20, 19 and 11; `a` goes on in each of the steps.
    assert bench.times("a")[:5] == [15, 26, 26 + 11 + 19, 56 + 11 + 19, 86 + 11 + 12]
    assert bench.times("b")[0] == 109


def test_as_many_as_the_budget_and_the_limit_admit() -> None:
    bench = Bench(max_num_seqs=2, max_num_batched_tokens=50)
    for name in "abcd":
        bench.submit(name, tokens=2, prompt=5)
    bench.advance(0.001)
    assert bench.counts() == (1, 3)
    bench.advance(15)
    assert bench.counts() == (2, 2)
    bench.advance(10_000)
    assert [name for name, _, what in bench.log if what == "length"] == list("abcd")


def test_priority_decides_who_is_next() -> None:
    for policy, order in (("priority", "acb"), ("fcfs", "abc")):
        bench = Bench(policy, max_num_seqs=1)
        bench.submit("a")
        bench.submit("b", priority=5)
        bench.submit("c", priority=-5)
        bench.advance(1000)
        assert "".join(dict.fromkeys(name for name, _, _ in bench.log)) == order


def test_requests_reach_the_engine_after_a_while() -> None:
    bench = Bench(overhead_ms=7.0)
    bench.submit("a", prompt=5, tokens=1)
    bench.advance(2)
    bench.submit("b", prompt=5, tokens=1)
    assert bench.counts() == (0, 2)
    bench.advance(1000)
    assert (bench.times("a"), bench.times("b")) == ([22], [37])
    assert bench.metrics.queue.sum == pytest.approx(0.007 + 0.020)
    assert bench.metrics.ttft.sum == pytest.approx(0.022 + 0.035)


def test_slow_one_takes_its_factor_longer_and_others_do_not() -> None:
    bench = Bench(decode_ms_per_sequence=0.0, prefill_ms_per_1k=0.0)
    slow = bench.made("a", prompt=10, tokens=3)
    slow.slow = 5.0
    bench.scheduler.submit([slow, bench.made("b", prompt=10, tokens=12)])
    bench.advance(1000)
    assert bench.times("b") == [10 + 10 * n for n in range(12)]
    assert bench.times("a") == [50, 100, 150]


def test_engine_slows_down_with_the_next_step() -> None:
    bench = Bench(decode_ms_per_sequence=0.0)
    bench.submit("a", prompt=10, tokens=9)
    bench.advance(35)
    bench.scheduler.slow_down(4.0)
    bench.advance(1000)
    assert bench.times("a")[:5] == [20, 30, 40, 80, 120]


def test_paused_engine_goes_on_where_it_stood() -> None:
    bench = Bench(decode_ms_per_sequence=0.0)
    bench.submit("a", prompt=10, tokens=3)
    bench.advance(25)
    bench.scheduler.pause()
    bench.submit("b", prompt=10, tokens=1)
    bench.advance(500)
    assert bench.times("a") == [20]
    bench.scheduler.resume()
    bench.advance(500)
    assert bench.times("a") == [20, 530, 550]
    assert bench.times("b") == [550]


def test_freeze_in_the_midst_of_a_step_leaves_the_rest_of_it_for_later() -> None:
    bench = Bench(decode_ms_per_sequence=0.0)
    struck = bench.made("a", prompt=10, tokens=3)
    struck.strike(Fault(fail="freeze", after_tokens=1))
    bench.scheduler.submit([struck, bench.made("b", prompt=10, tokens=3)])
    bench.advance(500)
    assert (bench.times("a"), bench.times("b"), bench.times("a", "freeze")) == ([30], [30], [40])
    bench.scheduler.resume()
    bench.advance(500)
    assert bench.times("b") == [30, 500, 510]
    assert bench.times("a") == [30, 510, 520]


@pytest.mark.parametrize("seconds", [None, 0.1])
def test_stalled_one_holds_its_place(seconds: float | None) -> None:
    bench = Bench(decode_ms_per_sequence=0.0)
    struck = bench.made("a", prompt=10, tokens=4)
    struck.strike(Fault(fail="stall", after_tokens=2, for_s=seconds))
    bench.scheduler.submit([struck])
    bench.advance(1000)
    assert bench.times("a")[:2] == [20, 30]
    assert bench.times("a", "stall") == [40]
    if seconds is None:
        assert len(struck.ids) == 2
        assert bench.counts() == (1, 0)
        assert bench.scheduler.kv_usage > 0
        bench.submit("b", prompt=10, tokens=2)
        bench.advance(100)
        assert len(bench.times("b")) == 2
        bench.scheduler.cancel(struck)
    else:
        assert bench.times("a") == [20, 30, 150, 160]
    assert (bench.counts(), bench.scheduler.kv_usage) == ((0, 0), 0)


def test_process_that_comes_late_makes_up_for_it() -> None:
    bench = Bench(decode_ms_per_sequence=0.0)
    seq = bench.submit("a", prompt=10, tokens=100)
    bench.advance(20)
    bench.clock._now += 0.035
    bench.advance(0)
    assert len(seq.ids) == 1 + 3
    # But not for everything: what is more than a tenth of a second ago is lost.
    bench.clock._now += 5.0
    bench.advance(100)
    assert len(seq.ids) < 40


def test_prompt_that_is_only_computed_says_nothing() -> None:
    bench = Bench()
    seq = bench.submit("a", prompt=10, tokens=0)
    bench.advance(100)
    assert (seq.ids, bench.times("a", "stop")) == ([], [20])


def test_killed_engine_loses_everything() -> None:
    bench = Bench(max_num_seqs=1)
    lost = [bench.submit("a", tokens=100), bench.submit("b")]
    bench.advance(16)
    assert bench.scheduler.kill() == lost
    bench.advance(1000)
    assert bench.times("a") == [15]
    assert (bench.counts(), bench.scheduler.kv_usage) == ((0, 0), 0)


def test_iterations_count_the_tokens_computed() -> None:
    bench = Bench()
    bench.submit("a", prompt=9, tokens=3)
    bench.advance(1000)
    assert (bench.metrics.iteration.count, bench.metrics.iteration.sum) == (3, 11)
