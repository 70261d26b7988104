"""Distributions of prompt and answer lengths, in tokens."""

import math
from dataclasses import dataclass
from random import Random

FORMS = "N | uniform:LOW:HIGH | lognormal:MEDIAN:SIGMA[:MAX]"


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution over whole numbers of at least 1."""

    kind: str
    low: float
    high: float
    most: int

    def draw(self, random: Random) -> int:
        if self.kind == "fixed":
            return int(self.low)
        if self.kind == "uniform":
            return random.randint(int(self.low), int(self.high))
        return max(1, min(self.most, round(math.exp(random.gauss(math.log(self.low), self.high)))))


def parse_lengths(text: str) -> Lengths:
    """Read one of FORMS; ValueError says what is wrong with it."""
    kind, *numbers = text.split(":") if ":" in text else ("fixed", text)
    try:
        values = [float(n) for n in numbers]
    except ValueError:
        raise ValueError(f"{text!r}: expected {FORMS}") from None
    if not all(math.isfinite(v) for v in values):
        raise ValueError(f"{text!r}: every number must be finite")
    match kind, values:
        case "fixed", [length] if length >= 1:
            return Lengths("fixed", length, length, int(length))
        case "uniform", [low, high] if 1 <= low <= high:
            return Lengths("uniform", low, high, int(high))
        case "lognormal", [median, sigma] if median >= 1 and sigma >= 0:
            return Lengths("lognormal", median, sigma, 1_000_000)
        case "lognormal", [median, sigma, most] if 1 <= median <= most and sigma >= 0:
            return Lengths("lognormal", median, sigma, int(most))
    raise ValueError(f"{text!r}: expected {FORMS}, lengths of at least 1 and in order")
