"""Whether the server's process moves at all, and what its connections keep for it meanwhile."""

from __future__ import annotations

from collections.abc import Callable

# What the control endpoint is asked is heard even then: nothing else could thaw a frozen server.
_CONTROL = (b"GET /sim/control", b"POST /sim/control")
KEPT = 65_536
"""What a connection keeps for a frozen server before it reads no more, about as much as a system would."""


class Stillness:
    """What all connections of a server ask before they take bytes in."""

    __slots__ = ("_deafens", "frozen")

    def __init__(self, deafens: Callable[[], bool]) -> None:
        self._deafens = deafens
        self.frozen = False
        """Nothing moves, as after SIGSTOP."""

    def meets(self, first: bytes) -> bool:
        """Whether a new connection whose first bytes these are is heard, now or ever."""
        return first.startswith(_CONTROL) or not self._deafens()

    def hears(self, begun: bytes) -> bool:
        """Whether a request that begins so is taken in now."""
        return not self.frozen or begun.startswith(_CONTROL)
