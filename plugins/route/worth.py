"""Whether calls are answered sooner by a worker that has met the beginning of their prompt before.

Engines cache by whole blocks, forget what they have no room for, or cache nothing: only their times tell.
"""

from __future__ import annotations

from typing import Final

_KNOWN: Final = 8
_SMOOTH: Final = 0.05
_PLAIN: Final = 2.0
"""Where half of a call's time is saved, or more, its worker is worth all that may be waited for it."""


class Worth:
    """Of calls of one size at one pool; `share` is 1 where going there is worth a wait, or nothing is known, to 0."""

    __slots__ = ("_met", "_met_count", "_new", "_new_count", "share")

    def __init__(self) -> None:
        self._met = self._new = 0.0
        self._met_count = self._new_count = 0
        self.share = 1.0

    def note(self, own: float, met: bool) -> None:
        """A call took so many seconds of its own, with a beginning that its worker had `met` or not."""
        if met:
            self._met_count += 1
            self._met += max(_SMOOTH, 1.0 / self._met_count) * (own - self._met)
        else:
            self._new_count += 1
            self._new += max(_SMOOTH, 1.0 / self._new_count) * (own - self._new)
        if self._met_count >= _KNOWN and self._new_count >= _KNOWN:
            self.share = min(max(0.0, 1.0 - self._met / self._new) * _PLAIN, 1.0)
