"""Pooled percentiles and their bootstrap intervals."""

from random import Random

import pytest
from rig.pooled import Pool, differences


def window(random: Random, mean: float, length: int = 500) -> list[int]:
    return [round(random.gauss(mean, 100)) for _ in range(length)]


def test_quantiles_are_those_of_all_windows_together() -> None:
    pool = Pool([list(range(1, 51)), list(range(100, 50, -1))], block_size=7)
    assert pool.count == 100
    assert pool.quantiles([0.5, 0.99, 1.0, 0.0]) == [50, 99, 100, 1]


def test_redrawing_takes_whole_blocks() -> None:
    pool = Pool([[1] * 10, [2] * 10, [3] * 10], block_size=10)
    random = Random(5)
    drawn = [pool.redrawn(random, [0.0, 1.0]) for _ in range(50)]
    assert {low for low, _ in drawn} | {high for _, high in drawn} == {1, 2, 3}
    assert any(low == high for low, high in drawn)  # one block three times: samples drawn singly would never agree


def test_a_difference_is_found_and_its_interval_holds_it() -> None:
    random = Random(1)
    one = Pool([window(random, 5_300) for _ in range(3)], block_size=50)
    other = Pool([window(random, 5_000) for _ in range(3)], block_size=50)
    (median,) = differences(one, other, [0.5], redraws=200, seed=1)
    assert median.low <= median.value <= median.high
    assert median.low > 280
    assert median.high < 320
    assert differences(one, other, [0.5], redraws=200, seed=1) == [median]


def test_no_difference_is_not_claimed() -> None:
    random = Random(2)
    one, other = (Pool([window(random, 5_000) for _ in range(3)], block_size=50) for _ in range(2))
    for interval in differences(one, other, [0.5, 0.99], redraws=200, seed=1):
        assert interval.low <= 0 <= interval.high


def test_windows_that_disagree_widen_the_interval() -> None:
    random = Random(3)
    steady = Pool([window(random, 5_000) for _ in range(4)], block_size=50)
    moody = Pool([window(random, mean) for mean in (4_000, 5_000, 5_000, 6_000)], block_size=50)
    reference = Pool([window(random, 5_000) for _ in range(4)], block_size=50)
    (narrow,) = differences(steady, reference, [0.5], redraws=200, seed=1)
    (wide,) = differences(moody, reference, [0.5], redraws=200, seed=1)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_a_pool_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        Pool([[]], block_size=10)
