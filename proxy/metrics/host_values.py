"""Metrics of what plugins run once on a host: in the supervisor's own series, or in those of a gateway without one.

What parts give is said in `asking`. They are asked at every scrape, and a last time when they have ended: a counter
shows what was counted while its part was closed, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.proxy.metrics.asking import Asking, Levels, Source

if TYPE_CHECKING:
    from tailrace.proxy.metrics.register import Register


class HostValues:
    """The series of all parts; counters go on when a part ends and another one of the same plugin begins."""

    def __init__(self, register: Register, failed: Callable[[str], None]) -> None:
        self._asking = Asking(register, failed)
        self._sources: dict[str, Source] = {}

    def add(self, plugin: str, part: object) -> None:
        """Ask a part from now on."""
        source = Source.of(plugin, part)
        if source is not None:
            self._sources[plugin] = source
            self.collect()

    def remove(self, plugin: str) -> None:
        """The part has ended: ask it once more, and let its gauges go."""
        source = self._sources.pop(plugin, None)
        if source is not None:
            self._asking.ask(source, None)
            self.collect()

    def collect(self) -> None:
        """Ask all."""
        levels: Levels = {}
        for source in self._sources.values():
            self._asking.ask(source, levels)
        self._asking.show(levels)
