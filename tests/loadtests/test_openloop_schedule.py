"""Due times and lengths: fixed by the seed, right in the mean, refused when they make no sense."""

from itertools import pairwise
from random import Random

import pytest
from openloop.lengths import parse_lengths
from openloop.schedule import NS, Phase, arrivals, parse_phases


def test_the_same_seed_gives_the_same_arrivals() -> None:
    phases = [Phase(100, 5), Phase(10, 5)]
    first, second, other = (list(arrivals(phases, Random(seed), poisson=True)) for seed in ("a", "a", "b"))
    assert first == second
    assert first != other


def test_poisson_arrivals_have_the_rate_and_spread_of_their_phase() -> None:
    due = list(arrivals([Phase(200, 50), Phase(20, 50)], Random(1), poisson=True))
    counts = [sum(arrival.phase == phase for arrival in due) for phase in (0, 1)]
    assert counts[0] == pytest.approx(10_000, rel=0.05)
    assert counts[1] == pytest.approx(1_000, rel=0.15)
    gaps = [later.offset - earlier.offset for earlier, later in pairwise(due) if later.phase == 0]
    mean = sum(gaps) / len(gaps)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.1)
    assert all(gap >= 0 for gap in gaps)
    assert all((arrival.offset >= 50 * NS) == (arrival.phase == 1) for arrival in due)


def test_constant_arrivals_are_evenly_spaced_through_the_phases() -> None:
    due = list(arrivals([Phase(4, 1), Phase(2, 1)], Random(1), poisson=False))
    assert [arrival.offset / NS for arrival in due] == [0, 0.25, 0.5, 0.75, 1, 1.5]


def test_phases_are_read_in_sequence() -> None:
    assert parse_phases("10x30, 2.5x1") == [Phase(10, 30), Phase(2.5, 1)]


@pytest.mark.parametrize("text", ["", "10", "10x", "x10", "0x5", "5x0", "-1x5", "nanx5", "10x5,", "1e9x5"])
def test_wrong_phases_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="x"):
        parse_phases(text)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("64", 64, 64), ("fixed:64", 64, 64), ("uniform:3:9", 3, 9), ("lognormal:100:2:500", 1, 500)],
)
def test_lengths_stay_in_their_bounds(text: str, low: int, high: int) -> None:
    random, lengths = Random(1), parse_lengths(text)
    drawn = [lengths.draw(random) for _ in range(2_000)]
    assert all(low <= length <= high for length in drawn)
    assert max(drawn) == high == lengths.most


def test_lognormal_lengths_have_their_median() -> None:
    random, lengths = Random(1), parse_lengths("lognormal:200:0.8")
    drawn = sorted(lengths.draw(random) for _ in range(4_001))
    assert drawn[2_000] == pytest.approx(200, rel=0.05)


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-3", "uniform:9:3", "uniform:1", "lognormal:0:1", "lognormal:9:-1", "inf", "zipf:2"]
)
def test_wrong_lengths_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|finite"):
        parse_lengths(text)
