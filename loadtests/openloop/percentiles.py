"""Percentiles by nearest rank: every figure is a value that was really seen."""

import math
from collections.abc import Iterable, Sequence

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def nearest_rank(ordered: Sequence[int], quantile: float) -> int:
    """The smallest of the (sorted, at least one) values that `quantile` of them do not exceed."""
    return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]


def summary(values: Iterable[int]) -> dict[str, float]:
    """Count, and in milliseconds the mean and QUANTILES, of values in nanoseconds; the count alone where it is 0."""
    ordered = sorted(values)
    figures: dict[str, float] = {"count": len(ordered)}
    if ordered:
        figures["mean"] = round(sum(ordered) / len(ordered) / 1e6, 4)
        figures |= {name: round(nearest_rank(ordered, quantile) / 1e6, 4) for name, quantile in QUANTILES.items()}
    return figures
