"""A process's end, told by the kernel the moment it happens; the process need not be a child."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class ProcessEnd:
    """Calls back once, on the loop, when a process has ended.

    Raises ProcessLookupError if it is gone already, and another OSError where the kernel has no pidfds.
    """

    __slots__ = ("_fd", "_loop", "_on_end", "pid")

    def __init__(self, pid: int, on_end: Callable[[], None]) -> None:
        self.pid = pid
        self._on_end = on_end
        self._fd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._ended)

    def _ended(self) -> None:
        self.close()
        self._on_end()

    def close(self) -> bool:
        """Stop watching; False if the end was told, or watching stopped, before."""
        if self._fd < 0:
            return False
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        return True
