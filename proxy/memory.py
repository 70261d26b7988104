"""How much memory request bodies may take, over all calls of a process."""

from __future__ import annotations

from tailrace.proxy.fault import Reject, Whose


class BodyMemory:
    """A running total with a limit."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, size: int) -> None:
        """Count bytes in; raises Reject(503) where they do not fit."""
        if self.used + size > self.limit:
            raise Reject(
                503,
                "body_memory_full",
                "The gateway holds as many request bodies as it may; try again shortly.",
                retry_after=1.0,
                whose=Whose.GATEWAY,
            )
        self.used += size

    def give(self, size: int) -> None:
        """Count bytes out."""
        self.used -= size
