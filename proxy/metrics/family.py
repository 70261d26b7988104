"""What a metric is: a family of series that differ in their labels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

OTHER = "other"
"""The label value of everything that found no room of its own."""

FIXED_LABELS = frozenset(
    {"route", "outcome", "code", "why", "whose", "stage", "state", "gen_ai_operation_name", "gen_ai_provider_name"}
)
"""Labels whose values the program fixes: they are kept when the others fold into OTHER."""


class Kind(StrEnum):
    """Prometheus types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """How the gauges of several processes become one; counters and histograms are always added."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. A histogram's series is its sum, then one count for each bound and one above the last.

    `limit` is how many series of it one process may have before further ones fold.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    merge: Merge = Merge.SUM
    limit: int = 512

    @property
    def width(self) -> int:
        """How many slots a series takes."""
        return len(self.bounds) + 2 if self.kind is Kind.HISTOGRAM else 1

    def folded(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """The label values with everything that is not fixed by the program replaced by OTHER."""
        return tuple(
            value if label in FIXED_LABELS else OTHER for label, value in zip(self.labels, values, strict=True)
        )


def counter(name: str, what: str, *labels: str, limit: int = 512) -> Family:
    """A count that only grows."""
    return Family(name, Kind.COUNTER, what, labels, limit=limit)


def gauge(name: str, what: str, *labels: str, merge: Merge = Merge.SUM, limit: int = 512) -> Family:
    """A level that goes up and down."""
    return Family(name, Kind.GAUGE, what, labels, merge=merge, limit=limit)


def histogram(name: str, what: str, bounds: tuple[float, ...], *labels: str, limit: int = 512) -> Family:
    """A distribution over fixed bounds."""
    return Family(name, Kind.HISTOGRAM, what, labels, bounds, limit=limit)
