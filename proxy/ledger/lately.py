"""What has become durable lately, held for the shipper: it need not read again what was written a moment ago."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tailrace.proxy.ledger.chain import Head
from tailrace.proxy.ledger.entry import Entry

MOST = 8192
"""Entries held for a sink that is slow or down; older ones it finds in the log. Some 600 bytes each."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one round wrote to the log: from one place of a segment to another, with the head behind it."""

    begins: int
    ends: int
    head: Head
    entries: Sequence[Entry]

    @property
    def opens(self) -> bool:
        """Whether it stands right behind the header of its segment."""
        return self.head.records == len(self.entries)


class Lately:
    """Added to by the keeper, taken from by the shipper, each on its thread."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._held = 0
        self._lock = threading.Lock()

    def add(self, batch: Batch) -> None:
        """Hold what was written behind what was added before."""
        with self._lock:
            self._batches.append(batch)
            self._held += len(batch.entries)
            while self._held > MOST:
                self._let_go()

    def behind(self, segment: int, place: int, most: int) -> tuple[Batch | None, list[Entry]]:
        """The entries from a place of a segment on, about so many, and the last batch of them; None where none is held.

        They are held no longer then, nor is what stands before the place.
        """
        with self._lock:
            batches = self._batches
            while batches and (batches[0].head.segment, batches[0].begins) < (segment, place):
                self._let_go()
            taken: list[Batch] = []
            count = 0
            while batches and count < most and batches[0].head.segment == segment:
                first = batches[0]
                if first.begins != place and not (place == 0 and first.opens):
                    break
                taken.append(first)
                place = first.ends
                count += len(first.entries)
                self._let_go()
        return (taken[-1] if taken else None), list(chain.from_iterable(batch.entries for batch in taken))

    def _let_go(self) -> None:
        self._held -= len(self._batches.popleft().entries)
