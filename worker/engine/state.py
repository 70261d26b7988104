"""What the sidecar knows of its engine at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """Where the engine stands in its life; one of these always holds."""

    STARTING = "starting"
    WARMING = "warming"
    READY = "ready"
    SUSPECT = "suspect"
    """Serving before, doubtful now: a check failed, or work makes no progress. It becomes READY again or DEAD."""
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model the engine serves; `parent` is set for an adapter."""

    id: str
    parent: str | None = None
    max_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmth:
    """How the last warm-up went: the times to first token measured, or why there are none."""

    kind: str | None = None
    ttfts: tuple[float, ...] = ()
    steady: bool = False
    skipped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """An engine's load and health. Two states are equal if nothing that matters to a gateway differs.

    Times are seconds of the monotonic clock: `since` is when the phase began, `sampled` when the load in it was
    asked for (0 = never), so that a reader can tell an old figure from a fresh one.
    """

    phase: Phase = Phase.STARTING
    draining: bool = False
    reason: str = ""
    since: float = 0.0
    running: int = 0
    waiting: int = 0
    kv_use: float = 0.0
    tokens_per_second: float = 0.0
    models: tuple[Model, ...] = ()
    warmth: Warmth = Warmth()
    pid: int | None = None
    failures: int = 0
    """Runs in a row that ended before they were long enough to count as healthy."""
    sampled: float = field(default=0.0, compare=False)

    @property
    def ready(self) -> bool:
        """May new work be sent here."""
        return self.phase is Phase.READY and not self.draining

    @property
    def dead(self) -> bool:
        """Nothing answers, and whatever was in flight is lost."""
        return self.phase is Phase.DEAD

    @property
    def idle(self) -> bool:
        """No request is running or waiting, as far as the engine said."""
        return self.running == 0 and self.waiting == 0
