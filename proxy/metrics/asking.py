"""Asks plugins, and their parts that run once on a host, for their metrics, and bounds what they give.

Who has a method `metrics()` yields `(name, labels, value)`. It appears as `tailrace_<plugin>_<name>`: a counter if the
name ends in `_total`, whose value then only grows, else a gauge, which is shown for as long as it is given. A counter
that is not given any more has lost its subject, and begins at zero if it is given again. Whole numbers are exact up to
2**53. Label values must come from a bounded set; one metric has at most 64 series: further counters are added up under
`other`, further gauges left out, and the log says so once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tailrace.proxy.metrics.family import OTHER, Family, Kind
from tailrace.proxy.metrics.register import Register
from tailrace.proxy.metrics.segment import Values

log = logging.getLogger("tailrace")

Value = tuple[str, Mapping[str, str], float]
Levels = dict[tuple[Family, Values], float]
"""The gauges of one round, each the sum of what all who give it say."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_LIMIT = 64
_TOLD = {
    "dropped_total": "What the plugin {plugin} had no room for or could not write, and has lost, such as log lines."
}


class Source:
    """Who gives metrics, and what its counters showed when it was last asked."""

    __slots__ = ("plugin", "prefix", "seen", "values")

    def __init__(self, plugin: str, values: Callable[[], Iterable[Value]]) -> None:
        self.plugin = plugin
        self.prefix = re.sub(r"[^a-z0-9]+", "_", plugin.lower()).strip("_")
        self.values = values
        self.seen: dict[tuple[Family, Values], float] = {}

    @classmethod
    def of(cls, plugin: str, giver: object) -> Source | None:
        """The metrics of a plugin, or of its part; None where it has none."""
        method: Any = getattr(giver, "metrics", None)
        return cls(plugin, method) if callable(method) else None


class Asking:
    """Counters are added to as they are asked for; gauges are collected, and shown when a round is over."""

    def __init__(self, register: Register, failed: Callable[[str], None]) -> None:
        self._register = register
        self._failed = failed
        self._shown: Levels = {}
        self._complained: set[str] = set()

    def ask(self, source: Source, levels: Levels | None) -> None:
        """Take what a source gives; its gauges go to `levels`, or nowhere."""
        before, source.seen = source.seen, {}
        try:
            for name, labels, value in source.values():
                self._take(source, (name, labels, float(value)), before, levels)
            for family, values in before.keys() - source.seen.keys():
                self._register.retire(family, values)
        except Exception:
            source.seen = before | source.seen
            self._failed(source.plugin)
            self._complain(source.plugin, f"plugin '{source.plugin}' failed to give its metrics", trace=True)

    def show(self, levels: Levels) -> None:
        """Show the gauges of a round; those of the round before that nobody gives any more disappear."""
        for family, values in self._shown.keys() - levels.keys():
            self._register.retire(family, values)
        for (family, values), level in levels.items():
            self._register.segment.slots[self._place(family, values)] = level
        self._shown = levels

    def _take(
        self, source: Source, given: Value, before: Mapping[tuple[Family, Values], float], levels: Levels | None
    ) -> None:
        name, labels, value = given
        full = f"tailrace_{source.prefix}_{name}"
        if not _NAME.match(name) or not all(_NAME.match(label) for label in labels):
            self._complain(full, f"plugin '{source.plugin}': '{name}' or one of its labels is no metric name")
            return
        kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
        keys = tuple(sorted(labels))
        values = tuple(str(labels[key]) for key in keys)
        told = _TOLD.get(name, "{name} of the plugin {plugin}.").format(name=name, plugin=source.plugin)
        family = Family(full, kind, told, keys, limit=_LIMIT)
        if kind is Kind.COUNTER:
            seen = source.seen.get((family, values), before.get((family, values), 0.0))
            # Also where nothing has happened yet: a counter is shown from its beginning.
            place = self._place(family, values)
            if value > seen:
                self._register.segment.slots[place] += value - seen
            source.seen[family, values] = max(value, seen)
        elif levels is not None:
            levels[family, values] = levels.get((family, values), 0.0) + value

    def _place(self, family: Family, values: Values) -> int:
        place = self._register.series(family, values)
        if not self._register.has(family, values):
            self._complain(
                f"{family.name}+",
                f"{family.name} has {_LIMIT} series, or had other labels before: what is beyond is "
                + (f"added up under '{OTHER}'" if family.kind is Kind.COUNTER else "left out"),
            )
        return place

    def _complain(self, about: str, text: str, *, trace: bool = False) -> None:
        """Log something once: this comes by again and again."""
        if about not in self._complained and len(self._complained) < _LIMIT:
            self._complained.add(about)
            log.error("%s", text, exc_info=trace)
