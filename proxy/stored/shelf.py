"""Answers in the memory of one process, bounded in bytes: what nobody has asked for the longest goes first."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.proxy.stored.answer import Answer


class Shelf:
    """What is kept, by key; what is out of date stays until its place is needed, for those who take that, too."""

    def __init__(self, limit: int, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: OrderedDict[bytes, Answer] = OrderedDict()
        self.limit = limit
        self.size = 0
        self.evicted = 0
        self.purged_ns = 0
        """When somebody last had answers thrown away: what was asked before may be answered by just those."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, check: bytes, *, late: float = 0.0) -> Answer | None:
        """The answer that is kept under a key, if it is for this request and not out of date by more than `late` s."""
        found = self._kept.get(key)
        if found is None or found.check != check or found.until + late < self._now():
            return None
        self._kept.move_to_end(key)
        return found

    def has(self, key: bytes) -> bool:
        """Whether anything is kept under a key."""
        return key in self._kept

    def put(self, key: bytes, answer: Answer) -> None:
        """Keep an answer; one that is larger than all there is room for is not kept."""
        self.drop(key)
        if answer.size > self.limit:
            return
        self._kept[key] = answer
        self.size += answer.size
        self._make_room()

    def resize(self, limit: int) -> None:
        """Keep at most so many bytes from now on."""
        self.limit = limit
        self._make_room()

    def _make_room(self) -> None:
        while self.size > self.limit:
            _, gone = self._kept.popitem(last=False)
            self.size -= gone.size
            self.evicted += 1

    def drop(self, key: bytes) -> None:
        """Forget what is kept under a key."""
        found = self._kept.pop(key, None)
        if found is not None:
            self.size -= found.size

    def keys(self) -> list[bytes]:
        """All keys, to be gone through in slices."""
        return list(self._kept)

    def look(self, key: bytes) -> Answer | None:
        """What is kept under a key, for whoever goes through all: it counts as no use."""
        return self._kept.get(key)
