"""How much memory request bodies may take: a limit for the host, of which each process has an equal part."""

from __future__ import annotations

from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.limits import Limits


class BodyMemory:
    """A running total with a limit; whoever adds checks the limit first."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def allot(self, limits: Limits, processes: int) -> None:
        """Take one process's part of what the host may hold, and never less than one body needs."""
        self.limit = max(limits.body_memory // processes, limits.body)

    def full(self) -> Reject:
        """What a body that does not fit is refused with."""
        return Reject(
            503,
            "body_memory_full",
            "The gateway holds as many request bodies as it may; try again shortly.",
            retry_after=1.0,
            whose=Whose.GATEWAY,
        )
