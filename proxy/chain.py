"""Everything that one configuration means for a call: built once, never changed, replaced as a whole by a reload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tailrace.proxy.births import Births
from tailrace.proxy.fleet import ModelEntry, Models, Pool, Worker
from tailrace.proxy.limits import Limits, Timeouts
from tailrace.proxy.pipeline import Pipeline
from tailrace.proxy.routes import RouteTable
from tailrace.proxy.settings import Compression

HOLD_UNARY: Final = 1 << 20


class Running:
    """How many calls hold a chain: from their head to their end, whether they wait, run or are dropped unserved."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


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
    compression: Compression
    forward_headers: frozenset[bytes] = frozenset()
    default_model: str | None = None
    hold_unary: int = HOLD_UNARY
    processes: int = 1
    taps: bool = False
    births: Births
    pools: Mapping[str, Pool]
    """By their names, for whoever sends calls to one that is not their model's."""
    pins: dict[Worker, ModelEntry]
    """Every worker of its pools, kept up with discovery, with an entry for calls that only this one can answer."""
    calls: Running = field(default_factory=Running)

    def unguarded(self) -> Chain:
        """The same without plugins, for paths that are answered whatever plugins think."""
        return replace(self, pipeline=Pipeline.of(()), taps=False)
