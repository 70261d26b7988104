"""What has become durable since the start, by model: the figures that metrics show, equal to the ledger's own."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.proxy.ledger.record import Record


@dataclass(slots=True)
class Total:
    """Of one model; amounts are in nano-units."""

    records: int = 0
    estimated: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    amount: int = 0
    lost_amount: int = 0


class Totals:
    """Added to by the keeper's thread alone."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Total] = {}

    @property
    def of(self) -> dict[tuple[str, str], Total]:
        """By model and currency; may be asked for by any thread."""
        return dict(self._of)

    def add(self, record: Record) -> None:
        """Count a record that is durable."""
        name = record.model, record.currency
        total = self._of.get(name)
        if total is None:
            total = self._of[name] = Total()
        total.records += 1
        total.estimated += record.estimated
        total.prompt += record.prompt
        total.cached += record.cached
        total.completion += record.completion
        total.amount += record.amount
        total.lost_amount += record.lost_amount
