"""Keys that this process has met lately: only what came before can be in a cache.

Each key has one of a fixed number of places, which hold the time of the last visit: two keys that share one are taken
for one another, which costs a detour. So a million sessions need no more memory than ten.
"""

from __future__ import annotations

from typing import Final

_PLACES: Final = 1 << 18
_TICK: Final = 64.0
"""Seconds; ten ticks after its last visit a key is forgotten."""
_REMEMBERED: Final = 10
_ROUND: Final = 255


class Familiar:
    """The keys of the last ten minutes or so."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places = bytearray(_PLACES)

    def met(self, key: int, now: float) -> bool:
        """Whether a key was visited lately."""
        last = self._places[key % _PLACES]
        return last > 0 and (int(now / _TICK) % _ROUND + 1 - last) % _ROUND < _REMEMBERED

    def visit(self, key: int, now: float) -> None:
        """Remember a key."""
        # 0 stands for never.
        self._places[key % _PLACES] = int(now / _TICK) % _ROUND + 1
