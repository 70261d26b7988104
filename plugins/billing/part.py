"""What billing runs once on a host: the ledger's books."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tailrace.plugins.billing.settings import Config
from tailrace.proxy.control import Refused
from tailrace.proxy.ground import Places
from tailrace.proxy.ledger.books import Books
from tailrace.proxy.plugin import AnyPlugin

log = logging.getLogger("tailrace")


class Part:
    """The books, as `HostPart`."""

    def __init__(self, places: Places, config: Config, books: Books) -> None:
        self._places = places
        self._config = config
        self.books = books

    async def answer(self, seat: int, question: str, fields: dict[str, Any]) -> Any:
        """Processes ask nothing: they write into memory that is read here."""
        raise Refused(f"billing has no answer to '{question}'")

    def left(self, seat: int) -> None:
        """The keeper finds what a process left open by itself."""

    async def follow(self, plugin: AnyPlugin) -> None:
        """Go by a changed configuration: the books are closed and opened anew where that says to keep others."""
        old, self._config = self._config, plugin.config
        self.books.hasten(prompt=_prompt(self._config))
        if (old.sink, old.keep) == (self._config.sink, self._config.keep):
            return
        await asyncio.to_thread(self.books.close)
        try:
            self.books = await asyncio.to_thread(opened, self._places, self._config)
        except Exception:
            log.exception("the ledger goes on with its old sink")
            self.books = await asyncio.to_thread(opened, self._places, old)

    def unready(self) -> Sequence[str]:
        """A ledger that takes nothing, where that means that calls will be refused."""
        return [f"billing: {trouble}" for trouble in self.books.standstill] if self._config.full == "refuse" else ()

    def metrics(self) -> Iterable[tuple[str, Mapping[str, str], float]]:
        """What is in the log, to the unit, and how well it gets there."""
        keeper, shipper = self.books.keeper, self.books.shipper
        for (model, currency), total in keeper.totals.of.items():
            labels = {"model": model, "currency": currency}
            yield "records_total", labels, total.calls
            yield "estimated_records_total", labels, total.estimated
            yield "amount_nano_total", labels, total.amount
            yield "lost_amount_nano_total", labels, total.lost_amount
            for kind, count in (("prompt", total.prompt), ("cached", total.cached), ("completion", total.completion)):
                yield "tokens_total", {**labels, "kind": kind}, count
        yield "orphans_total", {}, keeper.orphans
        yield "shipped_total", {}, shipper.shipped
        yield "waiting", {}, keeper.waiting
        # `quantile` is for summaries alone.
        yield "durable_seconds", {"of": "p50"}, keeper.ages.quantile(0.5)
        yield "durable_seconds", {"of": "p99.9"}, keeper.ages.quantile(0.999)
        yield "sink_behind_seconds", {}, shipper.behind_seconds
        yield "troubles", {}, len(self.books.troubles)


def opened(places: Places, config: Config) -> Books:
    """The books of a configuration; raises OSError or Down."""
    sink = None if config.sink is None else config.sink.reveal()
    return Books(places, sink, keep_seconds=config.keep, prompt=_prompt(config))


def _prompt(config: Config) -> bool:
    return config.durability == "strict"


@asynccontextmanager
async def part(places: Places, config: Config) -> AsyncIterator[Part]:
    """The part while the host serves."""
    here = Part(places, config, await asyncio.to_thread(opened, places, config))
    try:
        yield here
    finally:
        await asyncio.to_thread(here.books.close)
