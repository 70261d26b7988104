"""Records of kept calls on their way out of a process: bounded, so that nobody who is slow takes its memory."""

from __future__ import annotations

from collections import deque
from typing import Any

Raw = tuple[Any, ...]


class Outbox:
    """At most `limit` records; `dropped` counts those that were too many."""

    __slots__ = ("_limit", "dropped", "records")

    def __init__(self, limit: int) -> None:
        self.records: deque[Raw] = deque()
        self.dropped = 0
        self._limit = limit

    def put(self, raw: Raw) -> None:
        """Take a record, or drop it where there is no room."""
        if len(self.records) >= self._limit:
            self.dropped += 1
        else:
            self.records.append(raw)

    def take(self, count: int) -> list[Raw]:
        """The first of them, which are not here any more."""
        records = self.records
        return [records.popleft() for _ in range(min(count, len(records)))]

    def drop(self) -> None:
        """Nobody will take what is left."""
        self.dropped += len(self.records)
        self.records.clear()
