"""What all processes of a supervisor have counted: the living ones' memory, and what the dead left behind."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.proxy.metrics import CONTENT_TYPE, Segment, Supervision, Totals, render
from tailrace.proxy.metrics.exemplars import Exemplar, Place
from tailrace.proxy.metrics.exposition import OPEN_METRICS


class Tally:
    """Hands each process the memory that it counts in, and adds all of it up."""

    def __init__(self) -> None:
        self._living: list[Segment] = []
        self._totals = Totals()
        self._own = Segment.create()
        self.supervision = Supervision(self._own)

    def open(self) -> Segment:
        """Memory for a process that starts."""
        segment = Segment.create()
        self._living.append(segment)
        return segment

    def retire(self, segment: Segment) -> None:
        """Its process is gone: counters stay in the sum, gauges leave."""
        self._living.remove(segment)
        self._totals.add_final(segment)
        segment.close()

    def scrape(self, exemplars: Mapping[Place, Exemplar] | None = None) -> tuple[str, bytes]:
        """Content type and text for Prometheus; OpenMetrics where exemplars are given, be it none."""
        self.supervision.host_values.collect()
        text = render([self._own, *self._living], self._totals, exemplars)
        return CONTENT_TYPE if exemplars is None else OPEN_METRICS, text.encode()
