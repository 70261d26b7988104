"""What has become durable since the start, by model: the figures that metrics show, equal to the ledger's own."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.proxy.ledger.entry import (
    AMOUNT,
    CACHED,
    COMPLETION,
    ESTIMATED,
    LOST_AMOUNT,
    PROMPT,
    REQUESTS,
    Entry,
)
from tailrace.proxy.ledger.record import ORPHAN, Record


@dataclass(slots=True)
class Sum:
    """What a group of records comes to."""

    calls: int = 0
    requests: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    amount: int = 0
    lost_amount: int = 0
    orphans: int = 0
    estimated: int = 0
    unpriced: int = 0

    def add(self, record: Record) -> None:
        """Count a record in."""
        self.calls += 1
        self.requests += record.requests
        self.prompt += record.prompt
        self.cached += record.cached
        self.completion += record.completion
        self.amount += record.amount
        self.lost_amount += record.lost_amount
        self.orphans += record.ending == ORPHAN
        self.estimated += record.estimated
        self.unpriced += record.unpriced

    def enter(self, entry: Entry) -> None:
        """Count the same record in, as it is on its way."""
        numbers, words = entry.numbers, entry.words
        self.calls += 1
        self.requests += numbers[REQUESTS]
        self.prompt += numbers[PROMPT]
        self.cached += numbers[CACHED]
        self.completion += numbers[COMPLETION]
        self.amount += numbers[AMOUNT]
        self.lost_amount += numbers[LOST_AMOUNT]
        self.estimated += numbers[ESTIMATED]
        self.orphans += words.orphan
        self.unpriced += words.unpriced


class Totals:
    """Added to by the keeper's thread alone."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Sum] = {}

    @property
    def of(self) -> dict[tuple[str, str], Sum]:
        """By model and currency; may be asked for by any thread."""
        return dict(self._of)

    def add(self, entry: Entry) -> None:
        """Count a record that is durable."""
        group = entry.words.group
        total = self._of.get(group)
        if total is None:
            total = self._of[group] = Sum()
        total.enter(entry)
