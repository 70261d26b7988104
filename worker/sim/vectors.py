"""Text as vectors: the same text always the same one, texts that share words close together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from zlib import crc32

_FEET = 8
"""In how many places one token weighs."""


def embed(ids: Sequence[int], size: int) -> list[float]:
    """A vector of length 1: each token and each pair of neighbours weighs in a few places that its hash draws."""
    vector = [0.0] * size
    for at, token in enumerate(ids):
        _weigh(vector, crc32(b"%d" % token), 1.0)
        if at:
            _weigh(vector, crc32(b"%d,%d" % (ids[at - 1], token)), 0.5)
    # So that no two texts, not even permutations, are quite the same.
    _weigh(vector, crc32(repr(list(ids)).encode()), 0.1)
    norm = math.sqrt(sum(x * x for x in vector)) or 1.0
    return [x / norm for x in vector]


def _weigh(vector: list[float], drawn: int, weight: float) -> None:
    for foot in range(_FEET):
        drawn = crc32(b"%d" % foot, drawn)
        vector[drawn % len(vector)] += weight if drawn & 0x10000 else -weight


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """Between 0 and 1; 1 for the same text."""
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return min(1.0, max(0.0, (1 + dot) / 2))
