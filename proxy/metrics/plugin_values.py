"""Metrics of plugins: asked for twice a second, so a plugin only keeps plain numbers.

A plugin may have a method `metrics()` that yields `(name, labels, value)`. It appears as `tailrace_<plugin>_<name>`: a
counter if the name ends in `_total`, whose value then only grows over the life of the plugin, else a gauge. A plugin
without the method but with a number `dropped` has that shown as `dropped_total`. Label values must come from a bounded
set; one metric has at most 64 series, further ones fold.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.proxy.metrics.family import Family, Kind

if TYPE_CHECKING:
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.metrics.register import Register
    from tailrace.proxy.pipeline import Link

log = logging.getLogger("tailrace")

Value = tuple[str, Mapping[str, str], float]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_LIMIT = 64
_TOLD = {
    "dropped_total": "What the plugin {plugin} had no room for or could not write, and has lost, such as log lines."
}


class PluginValues:
    """The series of all plugins; counters go on over reloads, which bring fresh plugins that begin at zero."""

    def __init__(self, register: Register, failed: Callable[[str], None]) -> None:
        self._register = register
        self._failed = failed
        self._chains: list[Chain] = []
        self._sources: dict[int, list[_Source]] = {}
        self._complained: set[str] = set()

    def collect(self, chain: Chain) -> None:
        """Ask the plugins of the present chain, and of older ones until their last call is over."""
        if chain not in self._chains:
            self._chains.append(chain)
            self._sources[id(chain)] = [source for link in chain.pipeline.links if (source := _source(link))]
        gauges: dict[int, float] = {}
        for known in list(self._chains):
            for source in self._sources[id(known)]:
                self._ask(source, gauges if known is chain else None)
            if known is not chain and not known.calls.count:
                self._chains.remove(known)
                del self._sources[id(known)]
        for slot, level in gauges.items():
            self._register.segment.slots[slot] = level

    def _ask(self, source: _Source, gauges: dict[int, float] | None) -> None:
        try:
            for name, labels, value in source.values():
                self._take(source, name, labels, float(value), gauges)
        except Exception:
            self._failed(source.plugin)
            self._complain(source.plugin, f"plugin '{source.plugin}' failed to give its metrics", trace=True)

    def _take(
        self, source: _Source, name: str, labels: Mapping[str, str], value: float, gauges: dict[int, float] | None
    ) -> None:
        full = f"tailrace_{source.prefix}_{name}"
        if not _NAME.match(name) or not all(_NAME.match(label) for label in labels):
            self._complain(full, f"plugin '{source.plugin}': '{name}' or one of its labels is no metric name")
            return
        kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
        keys = tuple(sorted(labels))
        told = _TOLD.get(name, "{name} of the plugin {plugin}.").format(name=name, plugin=source.plugin)
        family = Family(full, kind, told, keys, limit=_LIMIT)
        slot = self._register.series(family, tuple(str(labels[key]) for key in keys))
        if kind is Kind.COUNTER:
            seen = (name, *(str(labels[key]) for key in keys))
            grown = value - source.seen.get(seen, 0.0)
            if grown > 0:
                self._register.segment.slots[slot] += grown
                source.seen[seen] = value
        elif gauges is not None:
            gauges[slot] = gauges.get(slot, 0.0) + value

    def _complain(self, about: str, text: str, *, trace: bool = False) -> None:
        """Log something once: this comes by twice a second."""
        if about not in self._complained and len(self._complained) < _LIMIT:
            self._complained.add(about)
            log.error("%s", text, exc_info=trace)


class _Source:
    """One plugin of one chain, and what its counters showed when it was last asked."""

    __slots__ = ("plugin", "prefix", "seen", "values")

    def __init__(self, plugin: str, values: Callable[[], Iterable[Value]]) -> None:
        self.plugin = plugin
        self.prefix = re.sub(r"[^a-z0-9]+", "_", plugin.lower()).strip("_")
        self.values = values
        self.seen: dict[tuple[str, ...], float] = {}


def _source(link: Link) -> _Source | None:
    plugin: Any = link.plugin
    method = getattr(plugin, "metrics", None)
    if callable(method):
        return _Source(link.name, method)
    if isinstance(getattr(plugin, "dropped", None), int | float):
        return _Source(link.name, lambda: [("dropped_total", {}, plugin.dropped)])
    return None
