"""What a supervisor counts about the processes it keeps."""

from __future__ import annotations

from tailrace.proxy.metrics import catalogue
from tailrace.proxy.metrics.host_values import HostValues
from tailrace.proxy.metrics.register import Register
from tailrace.proxy.metrics.segment import Segment


class Supervision:
    """The supervisor's own counters, in a segment that is rendered beside those of its processes."""

    def __init__(self, segment: Segment) -> None:
        self._register = register = Register(segment)
        self.segment = segment
        self.host_values = HostValues(register, self.part_failed)
        self._restarts = register.series(catalogue.RESTARTS, ())
        self._reload_failures = register.series(catalogue.RELOAD_FAILURES, ())

    def restarted(self) -> None:
        """A process ended unasked and is replaced."""
        self.segment.slots[self._restarts] += 1

    def part_failed(self, plugin: str) -> None:
        """A plugin's part that runs once on this host has failed."""
        self.segment.slots[self._register.series(catalogue.PLUGIN_FAILURES, (plugin,))] += 1

    def reload_failed(self) -> None:
        """A changed configuration was refused."""
        self.segment.slots[self._reload_failures] += 1
