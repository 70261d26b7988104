"""When requests are due, laid down before anything is sent.

An open loop: no due time depends on an answer, so a slow server meets the same arrivals as a fast one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Phase:
    """A rate held for some time. Requests due in a phase that is not `measured` are left out of the figures."""

    rate: float
    seconds: float
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Arrival:
    """One due time, in nanoseconds after the start of the run."""

    offset: int
    phase: int


def parse_phases(text: str) -> list[Phase]:
    """Read `RATExSECONDS,RATExSECONDS,...`; ValueError says what is wrong with it."""
    phases = []
    for part in text.split(","):
        rate, cross, seconds = part.strip().partition("x")
        try:
            phase = Phase(float(rate), float(seconds))
        except ValueError:
            raise ValueError(f"{part!r}: expected RATExSECONDS, such as 100x30") from None
        if not cross or not 0 < phase.rate < 1e6 or not 0 < phase.seconds < 1e6:
            raise ValueError(f"{part!r}: rate and seconds must be above 0 (and below a million)")
        phases.append(phase)
    return phases


def arrivals(phases: Sequence[Phase], random: Random, *, poisson: bool) -> Iterator[Arrival]:
    """Every due time of the phases in sequence; the same seed gives the same times."""
    start = 0.0
    for index, phase in enumerate(phases):
        for due in _poisson(phase.rate, random) if poisson else _constant(phase.rate):
            if due >= phase.seconds:
                break
            yield Arrival(round((start + due) * NS), index)
        start += phase.seconds


def _poisson(rate: float, random: Random) -> Iterator[float]:
    due = 0.0
    while True:
        due += random.expovariate(rate)
        yield due


def _constant(rate: float) -> Iterator[float]:
    return (number / rate for number in count())  # a sum of steps would drift
