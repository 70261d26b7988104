"""What the ledger knows of a counter: asked where memory was lost, the store's or this host's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.plugins.quota.windows import FOREVER, Window
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.sinks import sink_of
from tailrace.proxy.ledger.sinks.sink import Down, Spent
from tailrace.proxy.ledger.sinks.sqlite import NAME

if TYPE_CHECKING:
    from tailrace.plugins.quota.terms import Counter

_NANO: Final = 10**9
_EVER: Final = 2**63 - 1
_PARTS: Final = {"money": "amount", "tokens": "tokens", "requests": "calls"}

__all__ = ["Down", "Spend"]


class Spend:
    """The sink of the ledger, read in a thread, one question at a time: one is rare, and may take seconds."""

    def __init__(self, url: str | None, state: Path) -> None:
        self._url = url
        self._state = state
        self._turn = asyncio.Lock()

    @property
    def own(self) -> str:
        """The name of this host's ledger; empty where it has none so far."""
        return segments.name_of(self._state / segments.FOLDER)

    async def of_all(self, counter: Counter, window: Window) -> dict[str, int]:
        """What each ledger knows to be spent of a counter, in calls that began in a window; raises Down."""
        return await self._summed(counter, window.begins, window.ends)

    async def of_own(self, counter: Counter, window: Window, before: int = FOREVER) -> int:
        """The same of this host's ledger, in calls that began before a time."""
        own = self.own
        found = await self._summed(counter, window.begins, min(window.ends, before)) if own else {}
        return found.get(own, 0)

    async def _summed(self, counter: Counter, begins: int, ends: int) -> dict[str, int]:
        if self._url is None and not (self._state / NAME).exists():
            return {}
        async with self._turn:
            found = await asyncio.to_thread(self._ask, counter, begins * _NANO, min(ends * _NANO, _EVER))
        part = _PARTS[counter.what]
        return {ledger: getattr(spent, part) for ledger, spent in found.items()}

    def _ask(self, counter: Counter, first_ns: int, end_ns: int) -> dict[str, Spent]:
        sink = sink_of(self._url, self._state, read_only=True)
        try:
            return sink.spent(*counter.whom, first_ns, end_ns)
        finally:
            sink.close()
