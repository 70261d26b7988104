"""Everything that one configuration means for a call: built once, never changed, replaced as a whole by a reload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.proxy.fleet import ModelEntry, Models
from tailrace.proxy.pipeline import Pipeline
from tailrace.proxy.routes import RouteTable
from tailrace.proxy.settings import Limits, Timeouts

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call

HOLD_UNARY = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A call keeps the chain it began with, whatever is loaded meanwhile."""

    generation: int
    pipeline: Pipeline
    models: Models
    routes: RouteTable
    timeouts: Timeouts
    limits: Limits
    heartbeat: float
    created: int
    forward_headers: frozenset[bytes] = frozenset()
    answer_headers: frozenset[bytes] = frozenset()
    default_model: str | None = None
    hold_unary: int = HOLD_UNARY

    def with_model(self, call: Call, entry: ModelEntry, body: bytes) -> bytes:
        return body
