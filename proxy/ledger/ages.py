"""How long settlements took to become durable: a histogram fine enough for its last thousandth."""

from __future__ import annotations

_PARTS = 16
_PART_BITS = 4
_POWERS = 44


class Ages:
    """Counts of ages in buckets that are a sixteenth wide; the errors of its quantiles are as small."""

    def __init__(self) -> None:
        self._counts = [0] * (_POWERS * _PARTS)
        self.count = 0
        self.sum_ns = 0
        self.most_ns = 0

    def add(self, age_ns: int) -> None:
        """Count one; a clock that was set back makes it none at all."""
        age_ns = max(age_ns, 0)
        self._counts[_place(age_ns)] += 1
        self.count += 1
        self.sum_ns += age_ns
        self.most_ns = max(self.most_ns, age_ns)

    def quantile(self, share: float) -> float:
        """Seconds within which this share of all became durable; 0 where there were none."""
        wanted = share * self.count
        seen = 0
        for place, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_upper(place), self.most_ns) / 1e9
        return 0.0

    def within(self, seconds: float) -> int:
        """How many became durable within a time."""
        return sum(self._counts[: _place(int(seconds * 1e9)) + 1])


def _place(age_ns: int) -> int:
    power = max(age_ns.bit_length() - _PART_BITS - 1, 0)
    place = power * _PARTS + (age_ns >> power)
    return min(place, _POWERS * _PARTS - 1)


def _upper(place: int) -> int:
    power = max(place // _PARTS - 1, 0)
    return (place - power * _PARTS + 1) << power
