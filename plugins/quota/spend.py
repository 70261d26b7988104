"""What the ledger knows of a counter: asked where memory was lost, the store's or this host's own."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.plugins.quota.windows import Window
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.sinks import sink_of
from tailrace.proxy.ledger.sinks.sink import Down, Spent
from tailrace.proxy.ledger.sinks.sqlite import NAME

if TYPE_CHECKING:
    from tailrace.plugins.quota.terms import Counter

_NANO: Final = 10**9
_EVER: Final = 2**63 - 1
_FRESH: Final = 10.0
"""Seconds for which sums that still change are believed."""
_KEPT: Final = 16
_PARTS: Final = {"money": "amount", "tokens": "tokens", "requests": "calls"}

Sums = dict[str, dict[str, Spent]]
"""By name and ledger."""

__all__ = ["Down", "Spend"]


class Spend:
    """The sink of the ledger, read in a thread, for all names at once: there are many, and a question takes seconds."""

    def __init__(self, url: str | None, state: Path) -> None:
        self._url = url
        self._state = state
        self._turn = asyncio.Lock()
        self._began = time.monotonic()
        self._known: dict[tuple[str, int, int], tuple[float, Sums]] = {}

    @property
    def own(self) -> str:
        """The name of this host's ledger; empty where it has none so far."""
        return segments.name_of(self._state / segments.FOLDER)

    async def of_all(self, counter: Counter, window: Window) -> dict[str, int]:
        """What each ledger knows to be spent of a counter, in calls that began in a window; raises Down."""
        return await self._summed(counter, window.begins * _NANO, min(window.ends * _NANO, _EVER), _FRESH)

    async def of_own(self, counter: Counter, window: Window, before_ns: int) -> int:
        """The same of this host's ledger, in calls that began before a time that is past."""
        own, first_ns = self.own, window.begins * _NANO
        if not own or before_ns <= first_ns:
            return 0
        # That does not change any more, once a predecessor's last records have arrived.
        settled = time.monotonic() - self._began > _FRESH
        return (await self._summed(counter, first_ns, before_ns, math.inf if settled else 1.0)).get(own, 0)

    async def _summed(self, counter: Counter, first_ns: int, end_ns: int, fresh: float) -> dict[str, int]:
        if self._url is None and not (self._state / NAME).exists():
            return {}
        of, name = counter.whom
        which = of, first_ns, end_ns
        async with self._turn:
            at, sums = self._known.get(which, (-math.inf, {}))
            if time.monotonic() - at > fresh or at < self._began + _FRESH < time.monotonic():
                sums = await asyncio.to_thread(self._ask, of, first_ns, end_ns)
                self._known[which] = time.monotonic(), sums
                self._forget()
        part = _PARTS[counter.what]
        return {ledger: getattr(spent, part) for ledger, spent in sums.get(name, {}).items()}

    def _forget(self) -> None:
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]

    def _ask(self, of: str, first_ns: int, end_ns: int) -> Sums:
        sink = sink_of(self._url, self._state, read_only=True)
        try:
            return sink.spent(of, first_ns, end_ns)
        finally:
            sink.close()
