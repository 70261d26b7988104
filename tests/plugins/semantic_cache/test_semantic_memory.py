"""What is remembered, for whom and for how long, and that it stays within its bound."""

from __future__ import annotations

import numpy as np
from tailrace.plugins.semantic_cache.embedding import DIMENSIONS
from tailrace.plugins.semantic_cache.memory import Memory
from tailrace.plugins.semantic_cache.nearest import FEW, Nearest
from tailrace.proxy.stored.answer import Answer

HERE = ("acme", "faq", b"context")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def vector_of(seed):
    drawn = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
    return drawn / np.linalg.norm(drawn)


def answer(size=100, until=2000.0):
    return Answer(b"x" * size, b"", 1000.0, until, "acme", "m", "chat")


def near(memory, scope, vector):
    return [entry.question for similarity, entry in memory.nearest(scope, vector, 4) if similarity > 0.9]


def test_the_nearest_are_found_the_nearest_first():
    memory = Memory(1 << 20, Clock())
    vectors = [vector_of(seed) for seed in range(50)]
    for number, vector in enumerate(vectors):
        memory.put(HERE, vector, f"q{number}", answer())
    mixed = vectors[3] + 0.5 * vectors[7]
    found = list(memory.nearest(HERE, (mixed / np.linalg.norm(mixed)).astype(np.float32), 4))
    assert [entry.question for _, entry in found][:2] == ["q3", "q7"]
    assert [similarity for similarity, _ in found] == sorted([similarity for similarity, _ in found], reverse=True)
    assert abs(found[0][0] - float(vectors[3] @ mixed / np.linalg.norm(mixed))) < 0.01


def test_no_scope_sees_another():
    memory = Memory(1 << 20, Clock())
    memory.put(HERE, vector_of(1), "q", answer())
    for other in (("evil", "faq", b"context"), ("acme", "docs", b"context"), ("acme", "faq", b"other")):
        assert near(memory, other, vector_of(1)) == []
        assert memory.same(other, "q") is None
    assert near(memory, HERE, vector_of(1)) == ["q"]


def test_what_is_out_of_date_is_gone():
    clock = Clock()
    memory = Memory(1 << 20, clock)
    memory.put(HERE, vector_of(1), "q", answer(until=1010.0))
    clock.now = 1009.0
    assert memory.same(HERE, "q") is not None
    clock.now = 1011.0
    assert near(memory, HERE, vector_of(1)) == []
    assert (len(memory), memory.size) == (0, 0)


def test_a_question_has_one_answer_the_latest():
    memory = Memory(1 << 20, Clock())
    memory.put(HERE, vector_of(1), "q", answer(100))
    memory.put(HERE, vector_of(1), "q", answer(200))
    assert len(memory) == 1
    assert near(memory, HERE, vector_of(1)) == ["q"]
    assert len(memory.same(HERE, "q").answer.body) == 200


def test_memory_is_bounded_over_all_scopes_and_the_least_used_goes_first():
    memory = Memory(100_000, Clock())
    for number in range(300):
        memory.put(("tenant", "faq", b"%d" % (number % 7)), vector_of(number), f"q{number}", answer(1000))
        memory.used(memory.same(("tenant", "faq", b"0"), "q0"))
        assert memory.size <= 100_000
    assert memory.same(("tenant", "faq", b"0"), "q0") is not None
    assert memory.same(("tenant", "faq", b"1"), "q1") is None
    assert memory.evicted == 300 - len(memory)
    memory.resize(0)
    assert (len(memory), memory.size) == (0, 0)


def test_what_is_larger_than_all_there_is_room_for_is_not_kept():
    memory = Memory(10_000, Clock())
    assert not memory.put(HERE, vector_of(1), "q", answer(10_000))
    assert (len(memory), memory.size) == (0, 0)


def test_entries_that_came_and_went_leave_nothing_behind():
    memory = Memory(1 << 20, Clock())
    for number in range(2000):
        memory.put(HERE, vector_of(number % 40), f"q{number % 40}", answer())
        if number % 3 == 0:
            memory.drop(memory.same(HERE, f"q{number % 40}"))
    for number in range(40):
        kept = memory.same(HERE, f"q{number}")
        assert near(memory, HERE, vector_of(number)) == ([] if kept is None else [f"q{number}"])


def test_a_scope_that_grows_large_still_finds_its_own_and_forgets_what_is_taken_out():
    drawn = np.random.default_rng(7).standard_normal((2 * FEW, DIMENSIONS)).astype(np.float32)
    vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    nearest = Nearest()
    gone = set()
    for number, vector in enumerate(vectors):
        nearest.add(number, vector)
        if number % 5 == 3:
            nearest.remove(number - 2)
            gone.add(number - 2)
    assert nearest._all is None
    looked = range(0, len(vectors), 16)
    found = {number: nearest.find(vectors[number], 4) for number in looked}
    assert not any(key in gone for near in found.values() for key, _ in near)
    kept = [number for number in looked if number not in gone]
    right = [number for number in kept if found[number][0][0] == number and found[number][0][1] > 0.99]
    assert len(right) >= 0.95 * len(kept)


def test_a_scope_has_a_bound_of_its_own_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr("tailrace.plugins.semantic_cache.memory.LARGEST", 10)
    memory = Memory(1 << 20, Clock())
    for number in range(25):
        memory.put(HERE, vector_of(number), f"q{number}", answer())
    assert [memory.same(HERE, f"q{number}") is not None for number in range(25)] == [False] * 15 + [True] * 10
    assert (len(memory), memory.evicted) == (10, 15)
