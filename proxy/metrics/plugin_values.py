"""Metrics of the plugins in a process: asked for twice a second, so a plugin only keeps plain numbers.

What they give is said in `asking`. A plugin without `metrics()` but with a number `dropped` has that shown as
`dropped_total`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.proxy.metrics import catalogue
from tailrace.proxy.metrics.asking import Asking, Levels, Source

if TYPE_CHECKING:
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.metrics.register import Register
    from tailrace.proxy.pipeline import Link


class PluginValues:
    """The series of all plugins; counters go on over reloads, which bring fresh plugins that begin at zero."""

    def __init__(self, register: Register, failed: Callable[[str], None]) -> None:
        self._register = register
        self._asking = Asking(register, failed)
        self._chains: list[Chain] = []
        self._sources: dict[int, list[Source]] = {}

    def collect(self, chain: Chain) -> None:
        """Ask the plugins of the present chain, and of older ones until their last call is over."""
        if chain not in self._chains:
            self._chains.append(chain)
            for link in chain.pipeline.links:
                # Shown from 0: a counter that begins above it alarms nobody.
                self._register.series(catalogue.PLUGIN_FAILURES, (link.name,))
            self._sources[id(chain)] = [source for link in chain.pipeline.links if (source := _source(link))]
        levels: Levels = {}
        for known in list(self._chains):
            for source in self._sources[id(known)]:
                self._asking.ask(source, levels if known is chain else None)
            if known is not chain and not known.calls.count:
                self._chains.remove(known)
                del self._sources[id(known)]
        self._asking.show(levels)


def _source(link: Link) -> Source | None:
    plugin: Any = link.plugin
    source = Source.of(link.name, plugin)
    if source is None and isinstance(getattr(plugin, "dropped", None), int | float):
        return Source(link.name, lambda: [("dropped_total", {}, plugin.dropped)])
    return source
