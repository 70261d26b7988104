"""What is remembered in one process: answers by the vectors of their questions, bounded in bytes.

Each scope has an index of its own, so that no search can come upon what belongs to another: another tenant, another
domain, another context. What nobody has used for the longest goes first, whichever scope it is in.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import msgspec
from tailrace.plugins.semantic_cache.nearest import OF_A_SCOPE, OF_A_VECTOR, Nearest
from tailrace.proxy.stored.answer import Answer

if TYPE_CHECKING:
    from tailrace.plugins.semantic_cache.embedding import Vector

Scope = tuple[str, str, bytes]
"""Tenant, domain, and a digest of all else in which two requests have to be the same."""
_OVERHEAD: Final = 700
"""Bytes of the objects that an entry is made of, beside its answer, its question and its vector."""


LARGEST: Final = 20_000
"""Entries of a scope; with more, to add one would hold up the loop for more than a millisecond."""


class Entry(msgspec.Struct, gc=False, eq=False):
    """A question and its answer; `number` is its name in its scope's index."""

    scope: Scope
    number: int
    question: str
    answer: Answer

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return self.answer.size + len(self.question.encode()) + OF_A_VECTOR + _OVERHEAD


class _Shelf:
    """The entries of one scope."""

    __slots__ = ("by_number", "by_question", "nearest")

    def __init__(self) -> None:
        self.nearest = Nearest()
        self.by_number: dict[int, Entry] = {}
        self.by_question: dict[str, Entry] = {}


class Memory:
    """All scopes of a process; to be used from its loop only."""

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self._limit = limit
        self._now = now
        self._shelves: dict[Scope, _Shelf] = {}
        self._used: OrderedDict[int, Entry] = OrderedDict()
        self._numbers = 0
        self.size = 0
        self.evicted = 0
        self.purged_ns = 0
        """When somebody last had answers thrown away: what was asked before may be answered by just those."""

    def __len__(self) -> int:
        return len(self._used)

    def same(self, scope: Scope, question: str) -> Entry | None:
        """The entry of this very question."""
        shelf = self._shelves.get(scope)
        found = None if shelf is None else shelf.by_question.get(question)
        return found if found is not None and self._good(found) else None

    def nearest(self, scope: Scope, vector: Vector, count: int) -> Iterator[tuple[float, Entry]]:
        """Entries whose questions are near, with their similarity, the nearest first."""
        shelf = self._shelves.get(scope)
        if shelf is None:
            return
        for number, similarity in shelf.nearest.find(vector, count):
            entry = shelf.by_number.get(number)
            if entry is not None and self._good(entry):
                yield similarity, entry

    def _good(self, entry: Entry) -> bool:
        if entry.answer.until > self._now():
            return True
        self.drop(entry)
        return False

    def used(self, entry: Entry) -> None:
        """An entry was of use."""
        if entry.number in self._used:
            self._used.move_to_end(entry.number)

    def put(self, scope: Scope, vector: Vector, question: str, answer: Answer) -> bool:
        """Keep an answer; whether there is room for it at all."""
        self._numbers += 1
        entry = Entry(scope, self._numbers, question, answer)
        if entry.size + OF_A_SCOPE > self._limit:
            return False
        shelf = self._shelves.get(scope)
        if shelf is None:
            shelf = self._shelves[scope] = _Shelf()
            self.size += OF_A_SCOPE
        elif question in shelf.by_question:
            self._take_out(shelf, shelf.by_question[question])
        elif len(shelf.by_number) >= LARGEST:
            self.evicted += 1
            self._take_out(shelf, next(iter(shelf.by_number.values())))
        shelf.nearest.add(entry.number, vector)
        shelf.by_number[entry.number] = shelf.by_question[question] = entry
        self._used[entry.number] = entry
        self.size += entry.size
        self._shrink()
        return True

    def resize(self, limit: int) -> None:
        """Have another limit from now on."""
        self._limit = limit
        self._shrink()

    def _shrink(self) -> None:
        while self.size > self._limit:
            self.evicted += 1
            self.drop(next(iter(self._used.values())))

    def entries(self) -> list[Entry]:
        """All of them, to be gone through in slices."""
        return list(self._used.values())

    def drop(self, entry: Entry) -> None:
        """Forget an entry, and its scope with the last of them."""
        shelf = self._shelves.get(entry.scope)
        if shelf is None or entry.number not in shelf.by_number:
            return
        self._take_out(shelf, entry)
        if not shelf.by_number:
            del self._shelves[entry.scope]
            self.size -= OF_A_SCOPE

    def _take_out(self, shelf: _Shelf, entry: Entry) -> None:
        shelf.nearest.remove(entry.number)
        del shelf.by_number[entry.number]
        del shelf.by_question[entry.question]
        del self._used[entry.number]
        self.size -= entry.size


_memories: WeakKeyDictionary[asyncio.AbstractEventLoop, Memory] = WeakKeyDictionary()


def memory_here(limit: int, now: Callable[[], float]) -> Memory:
    """The one of this process, which outlives configurations."""
    loop = asyncio.get_running_loop()
    memory = _memories.get(loop)
    if memory is None:
        memory = _memories[loop] = Memory(limit, now)
    memory.resize(limit)
    return memory
