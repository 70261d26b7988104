"""Looks for a question that is the same but for its wording."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from tailrace.plugins.semantic_cache.guards import objection
from tailrace.plugins.semantic_cache.marks import marks_of

if TYPE_CHECKING:
    from tailrace.plugins.semantic_cache.asked import Asked
    from tailrace.plugins.semantic_cache.embedding import Embedder
    from tailrace.plugins.semantic_cache.guards import Guard
    from tailrace.plugins.semantic_cache.memory import Memory
    from tailrace.plugins.semantic_cache.question import Question
    from tailrace.proxy.personal import Finder

NEAREST: Final = 4
"""Neighbours that guards are shown: the nearest may differ by a number, and the next be the one."""
_SLOW_NS: Final = 1_000_000
_AT_FIRST_NS: Final = 500
"""For each character, until it is known what it takes here."""
_WEIGHT: Final = 0.05
_SIZES: Final = 24


class Search:
    """Of one configuration in one process; `objections` counts by domain and guard."""

    def __init__(self, embedder: Embedder, memory: Memory, personal: Finder) -> None:
        self._embedder = embedder
        self._memory = memory
        self._personal = personal
        self.objections: dict[tuple[str, Guard], int] = {}
        # By the power of two above the length of all that was said.
        self._took_ns = [float(_AT_FIRST_NS << size) for size in range(_SIZES)]

    def slow(self, question: Question) -> bool:
        """Whether `understand` would hold up the loop for more than a millisecond, by what it took before."""
        return self._took_ns[_size_of(question)] > _SLOW_NS

    def understand(self, asked: Asked, question: Question) -> str | None:
        """Give a question its vector; why it is not to be looked for. In whatever thread."""
        began = perf_counter_ns()
        if self._personal.finds(question.said):
            return "personal"
        asked.vector = self._embedder.embed(question.text)
        size = _size_of(question)
        self._took_ns[size] += _WEIGHT * (perf_counter_ns() - began - self._took_ns[size])
        return "form" if asked.vector is None else None

    def look(self, asked: Asked) -> None:
        """Find the nearest question that no guard objects to."""
        question, vector, domain = asked.question, asked.vector, asked.domain
        assert question is not None and vector is not None
        same = self._memory.same(asked.scope, question.text)
        if same is not None and asked.wishes.take(same.answer):
            asked.like, asked.similarity = same, 1.0
            self._memory.used(same)
            return
        marks = None
        for similarity, entry in self._memory.nearest(asked.scope, vector, NEAREST):
            if similarity < domain.threshold:
                return
            if not asked.wishes.take(entry.answer):
                continue
            marks = marks or marks_of(question.text)
            why = objection(marks, marks_of(entry.question), domain.guards)
            if why is None:
                asked.like, asked.similarity = entry, similarity
                self._memory.used(entry)
                return
            self.objections[domain.name, why] = self.objections.get((domain.name, why), 0) + 1


def _size_of(question: Question) -> int:
    return min(len(question.said).bit_length(), _SIZES - 1)
