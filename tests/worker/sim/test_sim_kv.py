"""A KV cache that fills up: what it holds, and who gives way."""

import pytest
from batch_bench import Bench


def test_cached_blocks_cost_neither_time_nor_room() -> None:
    bench = Bench()
    first = bench.submit("a", prompt=45, tokens=1, cache_salt=9)
    bench.advance(1000)
    second = bench.submit("b", prompt=45, tokens=1, cache_salt=9)
    assert bench.scheduler.kv_usage == pytest.approx(1 / 1000)
    bench.advance(1000)
    assert (first.cached, second.cached) == (0, 40)
    assert bench.times("b") == [1000 + 15]
    assert (bench.metrics.prompt_tokens, bench.metrics.cached_tokens) == (90, 40)
    assert bench.scheduler.kv_usage == 0


def test_full_cache_sends_the_last_one_back_to_compute_it_all_again() -> None:
    bench = Bench(num_gpu_blocks=6, block_size=10)
    first, last = bench.made("a", prompt=25, tokens=20), bench.made("b", prompt=25, tokens=20)
    bench.scheduler.submit([first, last])
    assert (bench.counts(), bench.scheduler.kv_usage) == ((2, 0), 1.0)
    # Each has room for five more tokens; the first then takes a block of the last one's.
    while bench.metrics.preemptions == 0:
        bench.advance(1)
    assert (len(first.ids), len(last.ids)) == (6, 6)
    assert bench.counts() == (1, 1)
    assert (last.computed, last.blocks) == (0, 0)
    bench.advance(10_000)
    assert bench.counts() == (0, 0)
    assert bench.metrics.preemptions == 1
    assert bench.metrics.finish_reasons == {"length": 2}
    assert bench.times("a")[-1] < bench.times("b")[6]
    # What it had said it does not say again, and its prompt counts once.
    assert len(last.ids) == len(bench.times("b")) == 20
    assert bench.metrics.prompt_tokens == 50
    assert bench.metrics.generation_tokens == 40
    alone = Bench()
    undisturbed = alone.submit("b", prompt=25, tokens=20, cache_salt=2)
    alone.advance(10_000)
    assert last.ids == undisturbed.ids


def test_of_the_running_the_one_of_least_priority_gives_way() -> None:
    bench = Bench("priority", num_gpu_blocks=6, block_size=10)
    low, high = bench.made("a", prompt=25, tokens=20, priority=3), bench.made("b", prompt=25, tokens=20, priority=1)
    bench.scheduler.submit([low, high])
    bench.advance(10_000)
    assert bench.metrics.preemptions >= 1
    assert bench.times("b")[-1] < bench.times("a")[-1]
    assert (len(low.ids), len(high.ids)) == (20, 20)


def test_who_was_sent_back_stands_before_those_that_came_later() -> None:
    bench = Bench(num_gpu_blocks=6, block_size=10)
    bench.scheduler.submit([bench.made(name, prompt=25, tokens=20) for name in "abc"])
    bench.advance(10_000)
    assert bench.metrics.preemptions >= 1
    assert [name for name, _, what in bench.log if what == "length"] == list("abc")


def test_one_that_fits_nowhere_runs_alone() -> None:
    bench = Bench(num_gpu_blocks=3, block_size=10)
    bench.submit("a", prompt=45, tokens=20)
    bench.advance(10_000)
    assert len(bench.times("a")) == 20
    assert bench.scheduler.kv_usage == 0


def test_cancelled_ones_make_room_at_once() -> None:
    bench = Bench(num_gpu_blocks=4, block_size=10)
    running, waiting = bench.submit("a", prompt=35, tokens=5), bench.submit("b", prompt=35, tokens=5)
    last = bench.submit("c", prompt=35, tokens=5)
    bench.advance(50)
    bench.scheduler.cancel(waiting)
    bench.scheduler.cancel(running)
    assert bench.scheduler.kv_usage == 0
    bench.advance(10_000)
    assert (len(bench.times("a")), bench.times("b")) == (1, [])
    assert len(bench.times("c")) == 5
    bench.scheduler.cancel(last)
    assert bench.counts() == (0, 0)


def test_last_one_gives_way_itself_where_it_is_short_of_a_block() -> None:
    bench = Bench(num_gpu_blocks=6, block_size=10)
    first, last = bench.made("a", prompt=21, tokens=9), bench.made("b", prompt=29, tokens=9)
    bench.scheduler.submit([first, last])
    while bench.metrics.preemptions == 0:
        bench.advance(1)
    assert (bench.counts(), last.blocks, first.blocks) == ((1, 1), 0, 3)
    bench.advance(10_000)
    assert bench.metrics.preemptions == 1
    assert bench.times("a")[-1] < bench.times("b")[-1]
    assert (len(first.ids), len(last.ids), bench.scheduler.kv_usage) == (9, 9, 0)
