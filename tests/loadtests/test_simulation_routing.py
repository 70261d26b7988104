"""The policies of `route` on a virtual clock: the real choice against simulated engines, in short."""

from __future__ import annotations

from functools import cache

import pytest
from simulation.clock import VirtualClock
from simulation.engine import Engine, Profile, Work
from simulation.routing import POLICIES, SITUATIONS, Row, simulate, table
from simulation.traffic import chats, prompts

pytestmark = pytest.mark.interpreted
SECONDS = 60.0


@cache
def row(situation: str, policy: str) -> Row:
    return simulate(situation, policy, seed=1, seconds=SECONDS)


@pytest.mark.parametrize("other", [policy for policy in POLICIES if policy != "tail"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_tail_is_ahead_at_p99(situation: str, other: str):
    assert row(situation, "tail").p99 < row(situation, other).p99


def test_tail_finds_more_in_caches():
    shares = {policy: row("shared-prefix chat", policy).cached for policy in POLICIES}
    assert shares["tail"] > 1.1 * max(share for policy, share in shares.items() if policy != "tail")


def test_all_policies_get_the_same_calls_and_one_seed_is_one_result():
    for situation in SITUATIONS:
        counts = {row(situation, policy).calls for policy in ("least_inflight", "tail")}
        assert len(counts) == 1
    assert simulate("hidden queues", "tail", seed=1, seconds=SECONDS) == row("hidden queues", "tail")


def test_schedules_are_laid_down_by_their_seed():
    for made in (chats, prompts):
        one, again, other = made(1, 5.0, 20.0), made(1, 5.0, 20.0), made(2, 5.0, 20.0)
        assert [at for at, _ in one] == [at for at, _ in again]
        assert [ask.raw for _, ask in one] == [ask.raw for _, ask in again]
        assert [at for at, _ in one] != [at for at, _ in other]
        assert all(0 <= at < 20.0 for at, _ in one)


def test_a_row_of_the_table():
    shown = table([Row("hidden queues", "tail", 10, 0.05, 1.2345, 0.5)]).splitlines()
    assert shown[-1] == "| hidden queues | tail | 10 | 50 | 1234 | 50 |"


class TestEngine:
    def served(self, *works: tuple[list[tuple[int, int]], int], **profile: float) -> list[float]:
        """When each of the calls, all sent at once, has its first content."""
        clock, found = VirtualClock(), []
        began = clock.now
        engine = Engine(clock, Profile(prompt_tokens_per_second=1000.0, step=0.01, step_per_answer=0.0, **profile))
        for parts, answer in works:
            engine.take(Work(parts, answer, lambda: found.append(round(clock.now - began, 3)), lambda: None))
        clock.run(began + 100)
        assert engine.running == len(engine.queue) == 0
        return found

    def test_prompts_are_done_in_order(self):
        first, second = self.served(([(1, 500)], 10), ([(2, 500)], 10))
        assert first == pytest.approx(0.51)
        assert second == pytest.approx(1.02, abs=0.01)

    def test_what_is_cached_is_not_done_again_but_for_the_last_part(self):
        _, second = self.served(([(1, 500), (2, 10)], 1), ([(1, 500), (3, 10)], 1))
        assert second == pytest.approx(0.52 + 0.02, abs=0.01)

    def test_what_was_not_used_for_longest_leaves_the_cache(self):
        works = [([(number, 500), (100, 1)], 1) for number in (1, 2, 1)]
        assert self.served(*works, cache_tokens=600)[2] == pytest.approx(3 * 0.511, abs=0.02)

    def test_without_a_slot_a_call_waits_for_an_answer_to_end(self):
        assert self.served(([(1, 1)], 100), ([(2, 1)], 1), slots=1)[1] == pytest.approx(1.02, abs=0.02)
