"""The lines of an access log that wait to be written: the event loop puts them there, and a thread takes them."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from tailrace.plugins.access_log_line import Lines

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

BATCH: Final = 64 * 1024


class Queue:
    """At most `limit` lines; `dropped` counts those that were too many, `wake` is set where there is much to write."""

    __slots__ = ("_made", "dropped", "limit", "lines", "size", "wake")

    def __init__(self, limit: int) -> None:
        self.lines: deque[bytes] = deque()
        self.wake = threading.Event()
        self.size = 0
        """Bytes put since some were taken last."""
        self.dropped = 0
        self.limit = limit
        self._made = Lines()

    def log(self, call: Call, outcome: Outcome) -> None:
        """Format a call's line and queue it."""
        self.put(self._made.line(call, outcome))

    def put(self, line: bytes) -> None:
        """Queue a line, or drop it where the queue is full; called on the event loop."""
        lines = self.lines
        if len(lines) >= self.limit:
            self.dropped += 1
            return
        lines.append(line)
        # The other thread sets it back without a lock: a lost update costs a tenth of a second.
        self.size += len(line)
        if self.size > BATCH:
            self.size = 0
            self.wake.set()
