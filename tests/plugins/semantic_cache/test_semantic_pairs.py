"""What becomes of the labelled pairs of questions, and that the texts which say so are right."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tailrace.plugins.semantic_cache.embedding import Embedder
from tailrace.plugins.semantic_cache.settings import ALL_GUARDS, Domain

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "loadtests"))

import semantic_table  # noqa: E402
from semantic_table import SAME, judge, rate, read_pairs  # noqa: E402

THRESHOLD = Domain(name="a").threshold
PAIRS = list(read_pairs())


@pytest.fixture(scope="module")
def embedder():
    return Embedder()


def test_every_pair_is_two_questions_that_no_other_pair_has():
    assert all(pair.one and pair.other and pair.one != pair.other for pair in PAIRS)
    assert len({(pair.one, pair.other) for pair in PAIRS}) == len(PAIRS) > 600
    assert min(sum(pair.kind == kind for pair in PAIRS) for kind in {pair.kind for pair in PAIRS}) >= 19


def test_hardly_any_trap_is_answered_and_most_rewordings_are(embedder):
    judged = judge(embedder, PAIRS, ALL_GUARDS)
    false, traps = rate(judged, THRESHOLD, same=False)
    right, same = rate(judged, THRESHOLD, same=True)
    assert false <= 1
    assert right >= 0.6 * same
    assert (traps, same) == (374, 271)


def test_no_guard_is_without_need(embedder):
    bare = [each for each in judge(embedder, PAIRS, ()) if each.pair.kind != SAME and each.hits(THRESHOLD)]
    traps = [each.pair for each in bare]
    without = {guard: judge(embedder, traps, [guard]) for guard in ALL_GUARDS}
    caught = {guard: sum(each.objection is not None for each in judged) for guard, judged in without.items()}
    assert len(bare) > 0.5 * 374
    assert min(caught.values()) > 0, caught


def test_guards_object_whichever_question_came_first(embedder):
    turned = [semantic_table.Pair(pair.kind, pair.other, pair.one, pair.unseen) for pair in PAIRS]
    for one, other in zip(judge(embedder, PAIRS, ALL_GUARDS), judge(embedder, turned, ALL_GUARDS), strict=True):
        assert (one.objection is None) is (other.objection is None), one.pair


def test_the_tables_of_the_texts_are_those_that_are_measured(embedder):
    looser = [guard for guard in ALL_GUARDS if guard != "words"]
    rows = list(semantic_table.table(embedder, PAIRS, [("none", ()), ("all but words", looser), ("all", ALL_GUARDS)]))
    figures = (ROOT / "loadtests/README.md").read_text()
    assert [row for row in rows if row not in figures] == []
    guide = (ROOT / "plugins/README.md").read_text()
    shown = re.findall(
        r"^\| (none|all but words|all) \| ([\d.]+) \| (\d+) \(.*?\) \| (\d+) \(.*?\) \|$", guide, re.MULTILINE
    )
    assert len(shown) == 12
    measured = {tuple(re.findall(r"\| (.*?) \| ([\d.]+) \| (\d+)/", row)[0]) for row in rows[2:]}
    assert {(guards, threshold, right) for guards, threshold, right, _ in shown} <= measured
