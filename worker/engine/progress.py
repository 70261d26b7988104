"""Whether an engine gets anywhere: its health check may answer while nothing inside it moves."""

from __future__ import annotations

from collections.abc import Callable


class Progress:
    """When the engine last moved: its figures changed, or bytes of an answer came.

    `entered` and `left` count the requests that the sidecar has in the engine, as a frozen engine's own figures know
    nothing of a request that came after it froze.
    """

    __slots__ = ("_clock", "at", "inside")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.at = clock()
        self.inside = 0

    def reset(self) -> None:
        """A new engine: the clock starts anew."""
        self.at = self._clock()

    def made(self) -> None:
        """Something moved."""
        self.at = self._clock()

    def entered(self) -> None:
        """A request was sent."""
        self.inside += 1

    def left(self) -> None:
        """A request is over, however it ended."""
        self.inside = max(self.inside - 1, 0)

    def still(self, *, working: bool) -> float:
        """Seconds without progress; 0 while there is nothing to make progress with."""
        if not self.inside and not working:
            self.at = self._clock()
        return self._clock() - self.at
