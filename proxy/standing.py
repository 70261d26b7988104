"""What is known of a worker's health and load, and how old that knowledge is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

UNSENT: Final = b";unsent"
"""At the end of a refusal's load header: the sidecar refused by itself, the engine has not seen the request."""
_LONGEST: Final = 256


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
    concurrency: int | None = None
    """How many calls its sidecar lets to the engine at once."""
    models: dict[str, str] = field(default_factory=dict)
    seen: float | None = None
    sampled: float | None = None
    """The monotonic second of the last word on its load."""
    reason: str = ""
    hop_refused: bool = False
    """It does not accept this gateway's hop key."""
    trouble: str = ""
    """Why its calls fail, where it takes them nevertheless; `troubled` is when that was last met."""
    troubled: float = 0.0
    _said: bytes = b""

    @property
    def takes_calls(self) -> bool:
        """Whether the worker itself says, or leaves open, that it accepts new calls."""
        return self.ready and not self.draining and not self.dead

    def hear(self, load: bytes, now: float) -> None:
        """Take in what a sidecar says of its load on an answer; what is malformed in it changes nothing."""
        self.seen = self.sampled = now
        if load == self._said or len(load) > _LONGEST:
            return
        self._said = load
        for part in load.split(b";"):
            name, _, value = part.partition(b"=")
            if name == b"running" and value.isdigit():
                self.running = int(value)
            elif name == b"waiting" and value.isdigit():
                self.waiting = int(value)
            elif name == b"kv":
                self.kv_use = _share(value, self.kv_use)

    @property
    def load_known(self) -> bool:
        """Whether anything is known of the load."""
        return self.running is not None or self.waiting is not None or self.kv_use is not None

    def forget_load(self) -> None:
        """What was said of the load is too old to count; nothing is known of it now."""
        self.running = self.waiting = None
        self.kv_use = self.tokens_per_second = None
        self._said = b""


def _share(text: bytes, otherwise: float | None) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return otherwise
    return value if 0.0 <= value <= 1.0 else otherwise
