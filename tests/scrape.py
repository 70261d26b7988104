"""Reads metrics as text, the way Prometheus does."""

import re

from tailrace.proxy.metrics import Totals, render

_LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)\Z")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


class Scrape:
    """One scrape of a gateway in this process."""

    def __init__(self, process):
        process.service.metrics.write()
        self.text = render([process.service.metrics.segment], Totals())
        self.samples = [
            (name, dict(_LABEL.findall(labels or "")), float(value))
            for name, labels, value in (
                _LINE.match(line).groups() for line in self.text.splitlines() if not line.startswith("#")
            )
        ]

    def value(self, name, **labels):
        """The sum of a metric's series that have these labels; None where there is none."""
        found = [
            value
            for sample, having, value in self.samples
            if sample == f"tailrace_{name}" and having.items() >= labels.items()
        ]
        return sum(found) if found else None

    def values_of(self, label):
        """Every value that a label has anywhere."""
        return {labels[label] for _, labels, _ in self.samples if label in labels}
