"""What one process may spend of one counter in one window."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.plugins.quota.book import GRANTED, RETURNED, SPENT
from tailrace.plugins.quota.terms import Counter, Granted


class Lease:
    """One counter's lease in one window; `open` until the process gives its slot back."""

    __slots__ = (
        "at", "begins", "counter", "ends", "filling", "granted", "left", "low", "open", "resets", "returned", "running",
        "spent", "used_at",
    )  # fmt: skip

    def __init__(self, counter: Counter, granted: Granted, words: Sequence[int]) -> None:
        self.counter = counter
        self.at = granted.at
        # The slot's words; nobody else writes the last two, and the first only grows.
        self.granted = words[granted.at + GRANTED]
        self.returned = words[granted.at + RETURNED]
        self.spent = words[granted.at + SPENT]
        self.open = True
        self.filling = False
        self.running = 0
        """How many calls are to be settled in it."""
        self.begins = 0.0
        self.used_at = 0.0
        self.low = 0
        self.hear(granted)

    def hear(self, granted: Granted) -> None:
        """Take note of what the authority says of it."""
        self.ends = granted.ends
        self.resets = granted.resets
        self.left = granted.left
