"""Where a client's transport was, for an answer that goes on for others: what is written there is heard by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Unheard(asyncio.Transport):
    """Takes everything at once, and tells when it is closed, as a transport does: in a later turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lost: Callable[[Exception | None], None]) -> None:
        super().__init__()
        self._loop = loop
        self._lost = lost
        self._closing = False

    def write(self, data: Any) -> None:
        """Nobody is there."""

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._closing

    def can_write_eof(self) -> bool:
        """An end would be heard by nobody either."""
        return False

    def close(self) -> None:
        """What goes on for others has ended."""
        self.abort()

    def abort(self) -> None:
        """End what goes on."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._lost, None)
