"""Counts tokens, and the time that each took, under the names of OpenTelemetry's conventions for generative AI.

Only calls whose usage is known: where a plugin asks engines for it. What those conventions have besides, durations and
times to first tokens, is counted under names of our own.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from tailrace.proxy.metrics import catalogue
from tailrace.proxy.metrics.catalogue import PER_TOKEN_BOUNDS, TOKEN_BOUNDS
from tailrace.proxy.outcome import Ending

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.metrics.register import Register
    from tailrace.proxy.outcome import Outcome

PROVIDER: Final = "vllm"
"""The `gen_ai.provider.name` of engines; the conventions have none of their own for them."""
_OPERATIONS: Final = {
    "chat": "chat",
    "messages": "chat",
    "responses": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
}
_MOST_REMEMBERED: Final = 4096


def operation_of(route: str) -> str:
    """The `gen_ai.operation.name` of a route: its own name where the conventions have no other."""
    return _OPERATIONS.get(route, route)


class GenerationCounts:
    """The distributions of one process."""

    __slots__ = ("_places", "_register", "_slots")

    def __init__(self, register: Register) -> None:
        self._register = register
        self._slots = register.segment.slots
        self._places: dict[tuple[str, str], tuple[int, int, int]] = {}

    def count(self, call: Call, outcome: Outcome, model: str) -> None:
        """Count a call whose usage is known, once; `model` is its label."""
        usage = outcome.usage
        if usage is None:
            return
        kind = (call.route.name, model)
        places = self._places.get(kind)
        if places is None:
            places = self._learn(kind)
        slots = self._slots
        at, completion = places[0], usage.completion
        slots[at] += usage.prompt
        slots[at + 1 + bisect_left(TOKEN_BOUNDS, usage.prompt)] += 1.0
        if not completion:
            return
        at = places[1]
        slots[at] += completion
        slots[at + 1 + bisect_left(TOKEN_BOUNDS, completion)] += 1.0
        first = outcome.first_content_ns
        if call.stream and first and completion > 1 and outcome.ending is Ending.COMPLETED:
            seconds = (outcome.finished_ns - first) * 1e-9 / (completion - 1)
            at = places[2]
            slots[at] += seconds
            slots[at + 1 + bisect_left(PER_TOKEN_BOUNDS, seconds)] += 1.0

    def _learn(self, kind: tuple[str, str]) -> tuple[int, int, int]:
        if len(self._places) >= _MOST_REMEMBERED:
            self._places.clear()
        route, model = kind
        labels = (operation_of(route), PROVIDER, model)
        places = self._places[kind] = (
            self._register.series(catalogue.INPUT_TOKENS, labels),
            self._register.series(catalogue.OUTPUT_TOKENS, labels),
            self._register.series(catalogue.PER_TOKEN, labels),
        )
        return places
