"""The `breaker` plugin in a process: hears how attempts fare, takes outliers out, and lets them in again with care."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from tailrace.plugins.breaker.board import Board, folder_in
from tailrace.plugins.breaker.circuit import SECOND, Why
from tailrace.plugins.breaker.hearing import Hearing
from tailrace.plugins.breaker.outliers import Outliers
from tailrace.plugins.breaker.panel import TICK, Panel
from tailrace.plugins.breaker.part import part
from tailrace.plugins.breaker.settings import Config as _Config
from tailrace.proxy.elsewhere import first_of
from tailrace.proxy.plugin import Plugin, Target

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.ground import Places
    from tailrace.proxy.host import HostPart
    from tailrace.proxy.outcome import AttemptEnd

log: Final = logging.getLogger("tailrace")
_COMPARE: Final = round(1 / TICK)
"""Ticks between two comparisons of the workers' paces."""


class Breaker(Plugin[_Config]):
    """Bars workers; the pool keeps a floor of those that are left.

    What calls tell it in each phase is heard by its `_hearing`, compiled and called as it is.
    """

    Config = _Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self.panel = Panel(config)
        self._outliers = Outliers(config)
        self._hearing = Hearing(config, self.panel, self._outliers)
        self._ticks = 0

    def host_part(self, places: Places) -> AbstractAsyncContextManager[HostPart]:
        """The board of this host."""
        return part(places)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Holds this process's view of the board, and the task that follows it."""
        self.panel.start(Board.open(folder_in(self.ground.places.shared)))
        ticking = asyncio.ensure_future(self._go_on())
        try:
            yield
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            self.panel.stop()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                self.tick()
            except Exception:
                log.exception("circuits could not be looked at")

    def tick(self) -> None:
        """What goes by time."""
        self.panel.tick()
        self._ticks += 1
        if self._ticks % _COMPARE == 0:
            self.panel.forget_the_gone()
            self.panel.note_spared()
            circuits = self.panel.circuits.values()
            for circuit, told in self._outliers.slowest(circuits, self.panel.now() / SECOND):
                self.panel.open(circuit, Why.SLOW, told)

    @property
    def score_workers(self) -> Callable[[Call, Sequence[Worker]], Sequence[float]]:
        """All the same, but for workers that wait for their probe, and those that get only a share of their calls."""
        return self._hearing.scores

    @property
    def nominate(self) -> Callable[[Call, Sequence[Worker]], Sequence[Worker]]:
        """Those of the eligible workers that wait for their probe, so that they are among those that are drawn."""
        return self._hearing.nominate

    @property
    def on_chosen(self) -> Callable[[Call, Attempt], bool]:
        """Note that there are calls; one that goes to an open worker is its probe, where it may have one."""
        return self._hearing.chosen

    def next_target(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> Target | None:
        """A degraded answer where a model has no healthy worker."""
        degraded, entry = self.config.degraded, call.entry
        if not degraded or entry is None or call.pinned is not None:
            return None
        if fault.kind != "no_worker" and any(worker.eligible and not worker.bars for worker in entry.pool.workers):
            return None
        found = first_of(degraded, call, tries, fault, "fallback")
        return None if found is None else found[1]

    @property
    def on_commit(self) -> Callable[[Call, Attempt], None]:
        """An answer has begun."""
        return self._hearing.committed

    @property
    def on_attempt_end(self) -> Callable[[Call, Attempt, AttemptEnd], None]:
        """Hear of faults, and of attempts that another one outran; what their clients ended says nothing."""
        return self._hearing.ended

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Circuits that this process has changed, and how its probes ended."""
        for (to, why), count in self.panel.changes.items():
            yield "changes_total", {"to": to, "why": why}, count
        for end, count in self.panel.probes.items():
            yield "probes_total", {"end": end}, count
