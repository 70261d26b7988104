"""What is known of a worker's health and load, and how old that knowledge is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Standing:
    """A worker's last reported state. A load of None is unknown, which is not the same as idle.

    `models` maps each listed model to its base model, empty for a base model. `seen` is the monotonic second of the
    last report.
    """

    ready: bool = True
    draining: bool = False
    dead: bool = False
    running: int | None = None
    waiting: int | None = None
    kv_use: float | None = None
    tokens_per_second: float | None = None
    models: dict[str, str] = field(default_factory=dict)
    seen: float | None = None
    reason: str = ""

    @property
    def takes_calls(self) -> bool:
        """Whether the worker itself says, or leaves open, that it accepts new calls."""
        return self.ready and not self.draining and not self.dead
