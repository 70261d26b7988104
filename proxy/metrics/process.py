"""The metrics of one process: what counts, and the timer that writes what is not counted."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tailrace.proxy.metrics import catalogue
from tailrace.proxy.metrics.calls import CallCounts
from tailrace.proxy.metrics.catalogue import STALL_BOUNDS
from tailrace.proxy.metrics.exemplars import Exemplars
from tailrace.proxy.metrics.host_values import HostValues
from tailrace.proxy.metrics.levels import Levels
from tailrace.proxy.metrics.plugin_values import PluginValues
from tailrace.proxy.metrics.register import Register
from tailrace.proxy.metrics.segment import Segment

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.service import Service

BEAT = 0.1
_BEATS_PER_WRITE = 5


class ProcessMetrics:
    """Counts into `segment`: one that a supervisor handed over, or the process's own."""

    def __init__(self, segment: Segment | None = None) -> None:
        self.segment = segment if segment is not None else Segment.create()
        register = Register(self.segment)
        self.calls = CallCounts(register)
        self.exemplars = Exemplars()
        self._levels = Levels(register, self.calls)
        self._plugins = PluginValues(register, self.calls.plugin_failed)
        self.host_values = HostValues(register, self.calls.plugin_failed)
        """What host parts give where this process runs them itself."""
        self._stall = register.series(catalogue.LOOP_STALL, ())
        self._reload_failures = register.series(catalogue.RELOAD_FAILURES, ())
        self._write: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beats = 0
        self._due = 0.0

    def reload_failed(self) -> None:
        """A changed configuration was refused by this process."""
        self.segment.slots[self._reload_failures] += 1.0

    def start(self, service: Service, workers: Callable[[], Iterable[Worker]]) -> None:
        """Begin to write gauges and to watch the loop."""

        def write() -> None:
            self.calls.stages.write()
            self._levels.write(service, workers())
            self._plugins.collect(service.chain)
            self.host_values.collect()

        self._loop, self._write = service.loop, write
        write()
        self._arm()

    def write(self) -> None:
        """Write the gauges now rather than within half a second."""
        if self._write is not None:
            self._write()

    def close(self) -> None:
        """Write a last time; calls that end even later are still counted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.write()
        self._write = None
        self.calls.stages.at_once = True
        self.segment.close_descriptor()

    def _arm(self) -> None:
        assert self._loop is not None
        self._due = time.monotonic() + BEAT
        self._timer = self._loop.call_later(BEAT, self._beat)

    def _beat(self) -> None:
        late = max(0.0, time.monotonic() - self._due)
        slots, at = self.segment.slots, self._stall
        slots[at] += late
        slots[at + 1 + bisect_left(STALL_BOUNDS, late)] += 1.0
        self._arm()
        self._beats += 1
        if self._beats % _BEATS_PER_WRITE == 0:
            self.write()
