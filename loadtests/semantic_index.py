"""What libraries for nearest neighbours take for what `semantic_cache` asks of them: time, memory, and what they miss.

    python loadtests/semantic_index.py --sizes 300 3000 30000

Those that are installed are measured, each in a process of its own: usearch, hnswlib, faiss, and numpy, which looks at
all. Vectors are those of made-up questions, by the plugin's own embedding. Memory is that of the process.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in a gateway
import numpy as np
from tailrace.plugins.semantic_cache.embedding import DIMENSIONS, Embedder

VERBS = "reset change cancel renew find export import share delete update connect install repair order track return"
THINGS = (
    "password invoice subscription account address order document printer router calendar contract payment voucher"
    " profile certificate licence backup report folder device warranty ticket reservation delivery insurance"
)
PLACES = "Berlin Paris Madrid Vienna Oslo Tokyo Austin Lima Cairo Delhi Turin Ghent Lyon Porto Bergen Graz"
FORMS = (
    "How do I {} the {} in {}?",
    "How can I {} my {} at the office in {}?",
    "I want to {} a {} for the branch in {}.",
    "Is it possible to {} the {} in {} online?",
    "What happens when I {} the {} in {}?",
)
ASKED = 300
LONGEST = 60.0
"""Seconds for replacing all."""


class Index(Protocol):
    """What is measured; `nearest` gives the key of the nearest."""

    def add(self, key: int, vector: Any) -> None: ...
    def nearest(self, vector: Any) -> int: ...
    def remove(self, key: int) -> None: ...


class Usearch:
    def __init__(self, _room: int) -> None:
        from usearch.index import Index as Of

        self._of = Of(ndim=DIMENSIONS, metric="ip", dtype="f16", connectivity=16, expansion_add=64, expansion_search=32)

    def add(self, key: int, vector: Any) -> None:
        self._of.add(key, vector, threads=1)

    def nearest(self, vector: Any) -> int:
        return int(self._of.search(vector, 4, threads=1).keys[0])

    def remove(self, key: int) -> None:
        self._of.remove(key)


class Hnswlib:
    def __init__(self, room: int) -> None:
        import hnswlib

        self._of = hnswlib.Index(space="ip", dim=DIMENSIONS)
        self._of.init_index(max_elements=room, M=16, ef_construction=64, allow_replace_deleted=True)
        self._of.set_ef(32)
        self._of.set_num_threads(1)

    def add(self, key: int, vector: Any) -> None:
        self._of.add_items(vector, key, replace_deleted=True)

    def nearest(self, vector: Any) -> int:
        return int(self._of.knn_query(vector, 4)[0][0][0])

    def remove(self, key: int) -> None:
        self._of.mark_deleted(key)


class Faiss:
    def __init__(self, _room: int) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        self._of = faiss.IndexIDMap2(faiss.IndexFlatIP(DIMENSIONS))

    def add(self, key: int, vector: Any) -> None:
        self._of.add_with_ids(vector.reshape(1, -1), np.array([key], np.int64))

    def nearest(self, vector: Any) -> int:
        return int(self._of.search(vector.reshape(1, -1), 4)[1][0][0])

    def remove(self, key: int) -> None:
        self._of.remove_ids(np.array([key], np.int64))


class FaissHnsw(Faiss):
    """Nothing can be taken out of its graph again."""

    def __init__(self, _room: int) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        graph = faiss.IndexHNSWFlat(DIMENSIONS, 16, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction, graph.hnsw.efSearch = 64, 32
        self._of = faiss.IndexIDMap2(graph)


class Numpy:
    def __init__(self, _room: int) -> None:
        self._vectors = np.zeros((4, DIMENSIONS), np.float32)
        self._keys: list[int] = []
        self._rows: dict[int, int] = {}

    def add(self, key: int, vector: Any) -> None:
        row = len(self._keys)
        if row == len(self._vectors):
            self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
        self._vectors[row] = vector
        self._keys.append(key)
        self._rows[key] = row

    def nearest(self, vector: Any) -> int:
        near = self._vectors[: len(self._keys)] @ vector
        return self._keys[int(near.argmax())]

    def remove(self, key: int) -> None:
        row, last = self._rows.pop(key), self._keys.pop()
        if last != key:
            self._keys[row] = last
            self._rows[last] = row
            self._vectors[row] = self._vectors[len(self._keys)]


KINDS: dict[str, tuple[str, type[Any]]] = {
    "usearch": ("usearch", Usearch),
    "hnswlib": ("hnswlib", Hnswlib),
    "faiss flat": ("faiss", Faiss),
    "faiss hnsw": ("faiss", FaissHnsw),
    "numpy": ("numpy", Numpy),
}


def questions(count: int) -> list[str]:
    """So many different ones, in an order that is the same each time."""
    made = [
        form.format(*words)
        for form in FORMS
        for words in itertools.product(*[words.split() for words in (VERBS, THINGS, PLACES)])
    ]
    random.Random(1).shuffle(made)
    while len(made) < count:
        made += [f"{text} {len(made)}" for text in made[: count - len(made)]]
    return made[:count]


def resident() -> int:
    """Bytes that the process has in memory, without those that were given back."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def timed(calls: list[Any]) -> tuple[list[Any], float]:
    """What calls gave, and the median of the microseconds that they took."""
    gave, took = [], []
    for call in calls:
        began = time.perf_counter_ns()
        gave.append(call())
        took.append((time.perf_counter_ns() - began) / 1000)
    return gave, sorted(took)[len(took) // 2]


def right(index: Index, asked: Any, stored: Any, offset: int) -> tuple[float, float]:
    """The share of nearest neighbours that are the nearest, and the microseconds of a search."""
    found, took = timed([lambda vector=vector: index.nearest(vector) for vector in asked])
    near = asked @ stored.T
    best = near.max(axis=1)
    return sum(near[row, key - offset] >= best[row] - 1e-3 for row, key in enumerate(found)) / len(found), took


def replaced(index: Index, asked: Any, others: Any) -> tuple[str, str]:
    """Replace all entries: microseconds for each, and the share of nearest neighbours that are the nearest then."""
    size = len(others)
    began = time.perf_counter()
    for key in range(size):
        try:
            index.remove(key)
        except Exception:
            return "cannot", "-"
        index.add(size + key, others[key])
        if time.perf_counter() - began > LONGEST:
            return f"{(time.perf_counter() - began) / (key + 1) * 1e6:.0f}", "-"
    took = (time.perf_counter() - began) / size * 1e6
    return f"{took:.0f}", f"{right(index, asked, others, size)[0]:.3f}"


def measure(name: str, size: int) -> None:
    """Print one row of the table."""
    embedder = Embedder()
    vectors = np.stack([embedder.embed(text) for text in questions(2 * size + ASKED)])
    asked, first, second = vectors[:ASKED], vectors[ASKED : ASKED + size], vectors[ASKED + size :]
    KINDS[name][1](4).add(1, first[0])  # what the library itself takes is not counted
    before = resident()
    index: Index = KINDS[name][1](size)
    _, adding = timed([lambda key=key: index.add(key, first[key]) for key in range(size)])
    held = (resident() - before) / size
    recall, took = right(index, asked, first, 0)
    replacing, churned = replaced(index, asked, second)
    before = resident()
    small = [KINDS[name][1](4) for _ in range(200)]
    for each in small:
        each.add(1, first[0])
    tiny = (resident() - before) / len(small) / 1024
    cells = [
        name,
        size,
        f"{adding:.0f}",
        f"{took:.0f}",
        f"{recall:.3f}",
        replacing,
        churned,
        f"{held:.0f}",
        f"{tiny:.0f}",
    ]
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 3000, 30000])
    parser.add_argument("--only", nargs=2, metavar=("NAME", "SIZE"), help="measure one in this very process")
    options = parser.parse_args()
    if options.only:
        measure(options.only[0], int(options.only[1]))
        return
    print("| library | entries | add us | search us | right | replace us | right then | bytes each | KiB of one |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for size in options.sizes:
        for name, (module, _) in KINDS.items():
            if importlib.util.find_spec(module) is not None:
                subprocess.run([sys.executable, __file__, "--only", name, str(size)], check=False)


if __name__ == "__main__":
    main()
