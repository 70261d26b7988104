"""Adds up the segments of several processes and renders the sum as Prometheus text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tailrace.proxy.metrics.exemplars import Exemplar, Place
from tailrace.proxy.metrics.family import OTHER, Family, Kind, Merge
from tailrace.proxy.metrics.segment import Reading, Segment, Values

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Totals:
    """What dead processes counted: added to every sum from then on, so that no counter ever falls."""

    def __init__(self) -> None:
        self._reading: Reading = {}

    def add_final(self, segment: Segment) -> None:
        """Take over the counters and histograms of a process that has ended; once, before the segment is closed."""
        for family, series in segment.read().values():
            if family.kind is Kind.GAUGE:
                continue
            _, kept = self._reading.setdefault(family.name, (family, {}))
            for values, slots in series.items():
                name = values
                if values not in kept and len(kept) >= 2 * family.limit:
                    name = (OTHER,) * len(values)
                _merge(family, kept, name, slots)

    def add_to(self, reading: Reading) -> None:
        """Add everything to what the living counted."""
        _add(reading, self._reading)


def render(segments: Iterable[Segment], totals: Totals, exemplars: Mapping[Place, Exemplar] | None = None) -> str:
    """The text of one scrape; it reads while the processes write, and costs them nothing.

    Given exemplars, even none, it is OpenMetrics. The bounds of buckets are written alike in both, so that a series
    goes on whichever is asked for.
    """
    opened = exemplars is not None
    reading: Reading = {}
    for segment in segments:
        _add(reading, segment.read())
    totals.add_to(reading)
    lines: list[str] = []
    for name in sorted(reading):
        family, series = reading[name]
        shown = [(values, series[values]) for values in sorted(series) if not math.isnan(series[values][0])]
        if not shown:
            continue
        called = name.removesuffix("_total") if opened and family.kind is Kind.COUNTER else name
        lines.append(f"# HELP {called} {_escaped(family.help, quotes=opened)}")
        lines.append(f"# TYPE {called} {family.kind}")
        for values, slots in shown:
            lines.extend(
                _histogram(family, values, slots, exemplars or {})
                if family.kind is Kind.HISTOGRAM
                else _plain(family, values, slots)
            )
    lines += ["# EOF", ""] if opened else [""]
    return "\n".join(lines)


def _add(into: Reading, reading: Reading) -> None:
    for family, series in reading.values():
        known, kept = into.setdefault(family.name, (family, {}))
        if known.labels != family.labels or known.width != family.width:
            continue  # two processes with different plugins gave one name to two things
        for values, slots in series.items():
            _merge(family, kept, values, slots)


def _merge(family: Family, kept: dict[Values, list[float]], values: Values, slots: list[float]) -> None:
    have = kept.get(values)
    if have is None or math.isnan(have[0]):
        kept[values] = list(slots)
    elif math.isnan(slots[0]):
        return
    elif family.merge is Merge.MIN:
        have[0] = min(have[0], slots[0])
    elif family.merge is Merge.MAX:
        have[0] = max(have[0], slots[0])
    else:
        kept[values] = [a + b for a, b in zip(have, slots, strict=True)]


def _plain(family: Family, values: Values, slots: list[float]) -> Iterable[str]:
    yield f"{family.name}{_labels(family, values)} {_number(slots[0])}"


def _histogram(
    family: Family, values: Values, slots: list[float], exemplars: Mapping[Place, Exemplar]
) -> Iterable[str]:
    count = 0.0
    for number, (bound, here) in enumerate(zip((*family.bounds, math.inf), slots[1:], strict=True)):
        count += here
        line = f"{family.name}_bucket{_labels(family, values, _number(bound))} {_number(count)}"
        seen = exemplars.get((family.name, values, number))
        yield line if seen is None else f'{line} # {{trace_id="{seen[0]}"}} {seen[1]:.9g} {seen[2]:.3f}'
    labels = _labels(family, values)
    yield f"{family.name}_sum{labels} {_number(slots[0])}"
    yield f"{family.name}_count{labels} {_number(count)}"


def _labels(family: Family, values: Values, le: str = "") -> str:
    pairs = [f'{label}="{_escaped(value, quotes=True)}"' for label, value in zip(family.labels, values, strict=True)]
    if le:
        pairs.append(f'le="{le}"')
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)
