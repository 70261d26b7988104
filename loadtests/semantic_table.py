"""How often `semantic_cache` gives the right answer to another wording, and the wrong one to another question.

    python loadtests/semantic_table.py
    python loadtests/semantic_table.py --guards numbers names --show 0.8

Over the pairs of `semantic/pairs.txt`, which were written by hand: those of [same] should hit, all others should not.
Every third pair was not looked at while words and threshold were chosen; `unseen` is of these alone. `--show` lists
what goes wrong at a threshold.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.plugins.semantic_cache.embedding import Embedder
from tailrace.plugins.semantic_cache.guards import Guard, objection
from tailrace.plugins.semantic_cache.marks import marks_of
from tailrace.plugins.semantic_cache.settings import ALL_GUARDS

PAIRS = Path(__file__).parent / "semantic" / "pairs.txt"
THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
SAME = "same"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions; `kind` is `same`, or what makes them different. `unseen` while the rules were made."""

    kind: str
    one: str
    other: str
    unseen: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair, how near it is, and which guard objects."""

    pair: Pair
    similarity: float
    objection: Guard | None

    def hits(self, threshold: float) -> bool:
        """Whether one would be given the answer of the other."""
        return self.similarity >= threshold and self.objection is None


def read_pairs(path: Path = PAIRS) -> Iterator[Pair]:
    """The pairs of a file, in its order."""
    kind, number = "", 0
    for line in path.read_text().splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        elif line and not line.startswith("#"):
            one, _, other = line.partition(" | ")
            number += 1
            yield Pair(kind, one, other, number % 3 == 0)


def judge(embedder: Embedder, pairs: Sequence[Pair], guards: Sequence[Guard]) -> list[Judged]:
    """What becomes of each pair."""
    judged = []
    for pair in pairs:
        one, other = embedder.embed(pair.one), embedder.embed(pair.other)
        near = 0.0 if one is None or other is None else float(one @ other)
        judged.append(Judged(pair, near, objection(marks_of(pair.one), marks_of(pair.other), guards)))
    return judged


def rate(judged: Sequence[Judged], threshold: float, *, same: bool) -> tuple[int, int]:
    """How many hit, and of how many."""
    meant = [each for each in judged if (each.pair.kind == SAME) is same]
    return sum(each.hits(threshold) for each in meant), len(meant)


def table(embedder: Embedder, pairs: Sequence[Pair], rows: Sequence[tuple[str, Sequence[Guard]]]) -> Iterator[str]:
    """The lines of the table, by guards and threshold."""
    yield "| guards | threshold | right hits | of them unseen | false hits | of them unseen |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, guards in rows:
        judged = judge(embedder, pairs, guards)
        unseen = [each for each in judged if each.pair.unseen]
        for threshold in THRESHOLDS:
            cells = [_share(*rate(of, threshold, same=same)) for same in (True, False) for of in (judged, unseen)]
            yield f"| {name} | {threshold:.2f} | {' | '.join(cells)} |"


def _share(hits: int, of: int) -> str:
    return f"{hits}/{of} ({hits / of:.1%})" if of else "-"


def by_kind(judged: Sequence[Judged], bare: Sequence[Judged], threshold: float) -> Iterator[str]:
    """False hits by what makes the questions different, without guards and with them."""
    yield f"| kind, at {threshold:.2f} | pairs | hits without guards | hits |"
    yield "| --- | --- | --- | --- |"
    for kind in dict.fromkeys(each.pair.kind for each in judged):
        of = [each for each in judged if each.pair.kind == kind]
        plain = sum(each.hits(threshold) for each in bare if each.pair.kind == kind)
        yield f"| {kind} | {len(of)} | {plain} | {sum(each.hits(threshold) for each in of)} |"


def mistakes(judged: Sequence[Judged], threshold: float) -> Iterator[str]:
    """What goes wrong, and what objected where something did; unseen pairs are not shown."""
    for each in judged:
        if each.hits(threshold) is not (each.pair.kind == SAME) and not each.pair.unseen:
            why = each.objection or ("near" if each.similarity >= threshold else "far")
            yield f"{each.pair.kind:10} {each.similarity:.3f} {why:10} {each.pair.one} | {each.pair.other}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guards", nargs="*", choices=ALL_GUARDS, default=list(ALL_GUARDS))
    parser.add_argument("--show", type=float, metavar="THRESHOLD")
    parser.add_argument("--kinds", type=float, metavar="THRESHOLD", default=0.8)
    options = parser.parse_args()
    embedder, pairs = Embedder(), list(read_pairs())
    judged = judge(embedder, pairs, options.guards)
    if options.show is not None:
        print("\n".join(mistakes(judged, options.show)))
        return
    looser = [guard for guard in ALL_GUARDS if guard != "words"]
    rows: list[tuple[str, Sequence[Guard]]] = [("none", ()), ("all but words", looser), ("all", ALL_GUARDS)]
    print("\n".join(table(embedder, pairs, rows)), end="\n\n")
    print("\n".join(by_kind(judged, judge(embedder, pairs, ()), options.kinds)))


if __name__ == "__main__":
    main()
