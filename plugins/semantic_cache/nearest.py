"""The index of one scope: which vectors are near to a given one.

Most scopes are small, and looking at every vector of a few thousand takes less than a graph of them does, misses none,
and takes no memory for links. Above that it is the graph of `usearch`: of the libraries that can take entries out again
it is the one with ready-made packages, and the smallest. Measured by `loadtests/semantic_index.py`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tailrace.plugins.semantic_cache.embedding import DIMENSIONS

if TYPE_CHECKING:
    from tailrace.plugins.semantic_cache.embedding import Vector

FEW: Final = 3000
"""Vectors up to which all of them are looked at."""
_AT_ONCE: Final = 3
"""Vectors that go into the graph with each that is added: all of them together would hold up the loop."""
OF_A_VECTOR: Final = 2000
"""Bytes that one takes, about, in either way."""
OF_A_SCOPE: Final = 2000


def make_ready() -> None:
    """Load what graphs need, which would hold up the loop when the first scope grows large."""
    _Graph()


class Nearest:
    """Vectors of length 1 by number, in the way that is the better one for as many as there are."""

    __slots__ = ("_all", "_graph", "_waiting")

    def __init__(self) -> None:
        self._all: _All | None = _All()
        self._graph: _Graph | None = None
        self._waiting: dict[int, None] = {}
        """Numbers that are not in the graph yet, in their order."""

    def add(self, number: int, vector: Vector) -> None:
        """Take a vector in, under a number that none has."""
        if self._all is None:
            if self._graph is not None:
                self._graph.add(number, vector)
            return
        self._all.add(number, vector)
        if self._graph is not None:
            self._waiting[number] = None
            self._move(self._all, self._graph)
        elif len(self._all.numbers) > FEW:
            self._graph = _Graph()
            self._waiting = dict.fromkeys(self._all.numbers)

    def _move(self, from_all: _All, to_graph: _Graph) -> None:
        for number in list(islice(self._waiting, _AT_ONCE)):
            to_graph.add(number, from_all.vector_of(number))
            del self._waiting[number]
        if not self._waiting:
            self._all = None

    def remove(self, number: int) -> None:
        """Take one out."""
        if self._all is not None:
            self._all.remove(number)
        if number in self._waiting:
            del self._waiting[number]
        elif self._graph is not None:
            self._graph.remove(number)

    def find(self, vector: Vector, count: int) -> list[tuple[int, float]]:
        """The numbers of the nearest and their cosines, the nearest first."""
        if self._all is not None:
            return self._all.find(vector, count)
        return [] if self._graph is None else self._graph.find(vector, count)


class _All:
    """One below the other in one array; the last takes the place of one that goes."""

    __slots__ = ("_rows", "numbers", "vectors")

    def __init__(self) -> None:
        import numpy as np

        self.vectors: Any = np.zeros((1, DIMENSIONS), np.float32)
        self.numbers: list[int] = []
        self._rows: dict[int, int] = {}

    def add(self, number: int, vector: Vector) -> None:
        row = len(self.numbers)
        if row == len(self.vectors):
            self.vectors.resize((row + row // 2 + 1, DIMENSIONS), refcheck=False)
        self.vectors[row] = vector
        self.numbers.append(number)
        self._rows[number] = row

    def vector_of(self, number: int) -> Vector:
        found: Vector = self.vectors[self._rows[number]]
        return found

    def remove(self, number: int) -> None:
        row, last = self._rows.pop(number), self.numbers.pop()
        if last != number:
            self.vectors[row] = self.vectors[len(self.numbers)]
            self.numbers[row] = last
            self._rows[last] = row

    def find(self, vector: Vector, count: int) -> list[tuple[int, float]]:
        held = len(self.numbers)
        near = self.vectors[:held] @ vector
        best = near.argsort() if held <= count else near.argpartition(held - count)[held - count :]
        found = [(self.numbers[row], float(near[row])) for row in best.tolist()]
        found.sort(key=_by_cosine, reverse=True)
        return found


class _Graph:
    """The vectors in half precision, each linked to some that are near."""

    __slots__ = ("_index",)

    def __init__(self) -> None:
        from usearch.index import Index

        self._index = Index(
            ndim=DIMENSIONS, metric="ip", dtype="f16", connectivity=16, expansion_add=64, expansion_search=32
        )

    def add(self, number: int, vector: Vector) -> None:
        self._index.add(number, vector, threads=1)

    def remove(self, number: int) -> None:
        self._index.remove(number)

    def find(self, vector: Vector, count: int) -> list[tuple[int, float]]:
        found = self._index.search(vector, count, threads=1)
        return [(int(key), 1.0 - float(distance)) for key, distance in zip(found.keys, found.distances, strict=True)]


def _by_cosine(found: tuple[int, float]) -> float:
    return found[1]
