"""Figures of a gateway's own metrics page, and what they grew by."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = tuple[str, frozenset[tuple[str, str]]]
Page = dict[Series, float]


def parse(text: str) -> Page:
    """The samples of an exposition."""
    page: Page = {}
    for line in text.splitlines():
        if found := _LINE.match(line):
            name, labels, value = found.groups()
            page[(name, frozenset(_LABEL.findall(labels or "")))] = float(value)
    return page


def grown(before: Page, after: Page) -> Page:
    """By how much each counter grew; one that began anew counts from zero."""
    return {
        series: value - before.get(series, 0.0) if value >= before.get(series, 0.0) else value
        for series, value in after.items()
    }


def added(pages: list[Page]) -> Page:
    """Several pages as one."""
    total: Page = {}
    for page in pages:
        for series, value in page.items():
            total[series] = total.get(series, 0.0) + value
    return total


def by(page: Page, name: str, label: str) -> dict[str, float]:
    """A metric summed up by one label, without what is zero."""
    sums: dict[str, float] = {}
    for (metric, labels), value in page.items():
        if metric == name and value:
            key = dict(labels).get(label, "")
            sums[key] = sums.get(key, 0.0) + value
    return sums


def share_above(page: Page, histogram: str, bound: float) -> float | None:
    """The part of a histogram's samples above a bound that is one of its buckets; None without samples."""
    buckets: Mapping[str, float] = by(page, f"{histogram}_bucket", "le")
    total = buckets.get("+Inf", 0.0)
    if not total:
        return None
    within = next((count for le, count in buckets.items() if le != "+Inf" and float(le) == bound), 0.0)
    return 1.0 - within / total


def totals(page: Page) -> dict[str, float]:
    """The counters of a page that are not zero, by name and labels, summed up over workers."""
    sums: dict[str, float] = {}
    for (metric, labels), value in page.items():
        if metric.endswith("_total") and value:
            told = ",".join(f"{name}={text}" for name, text in sorted(labels) if name != "worker")
            key = f"{metric}{{{told}}}" if told else metric
            sums[key] = sums.get(key, 0.0) + value
    return dict(sorted(sums.items()))
