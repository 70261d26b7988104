"""Which trace an observation belongs to: of each bucket the last call that was kept, shown to who asks for OpenMetrics.

Only calls that are kept are noted, so an exemplar leads to spans, and for a while to `tailrace trace`.
"""

from __future__ import annotations

from bisect import bisect_left
from time import time
from typing import TYPE_CHECKING, Final

from tailrace.proxy.metrics import catalogue
from tailrace.proxy.metrics.calls import known_model
from tailrace.proxy.metrics.segment import Values

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.metrics.family import Family
    from tailrace.proxy.outcome import Outcome

MOST: Final = 4096
Place = tuple[str, Values, int]
"""The name of a family, the labels of one of its series, and the number of a bucket."""
Exemplar = tuple[str, float, float]
"""The id of a trace, what was observed, and when, in Unix time."""


class Exemplars:
    """Those of one process."""

    def __init__(self) -> None:
        self._kept: dict[Place, Exemplar] = {}

    def note(self, call: Call, outcome: Outcome, trace_id: str) -> None:
        """Note a call that was counted."""
        race = call.race
        if not call.tries:
            return
        labels = (call.route.name, known_model(call))
        self._note(catalogue.DURATION, labels, (outcome.finished_ns - call.started_ns) * 1e-9, trace_id)
        winner = None if race is None else race.winner
        if outcome.first_content_ns and winner is not None and winner.streaming:
            arrived = call.received_ns or call.started_ns
            self._note(catalogue.FIRST_TOKEN, labels, (outcome.first_content_ns - arrived) * 1e-9, trace_id)

    def _note(self, family: Family, labels: Values, seconds: float, trace_id: str) -> None:
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[family.name, labels, bisect_left(family.bounds, seconds)] = (trace_id, seconds, time())

    def plain(self) -> list[tuple[Place, Exemplar]]:
        """All of them, for the supervisor."""
        return list(self._kept.items())


def latest(noted: list[list[tuple[Place, Exemplar]]]) -> dict[Place, Exemplar]:
    """The last of each bucket among what several processes have; places come as lists where a socket was between."""
    found: dict[Place, Exemplar] = {}
    for of_one in noted:
        for (name, labels, bucket), (trace_id, value, at) in of_one:
            place = (name, tuple(labels), bucket)
            if place not in found or found[place][2] < at:
                found[place] = (trace_id, value, at)
    return found
