"""Where sessions and prefixes lead, when they are passed over, and what regions change."""

from __future__ import annotations

import pytest
from route_scene import Scene

pytestmark = pytest.mark.interpreted
LONG = "Of mills and their races. " * 100


def home_of(scene: Scene, **asked) -> int:
    """Where such calls go while nothing is under way: all to one place."""
    counts = scene.chosen(20, **asked)
    assert sorted(counts)[:-1] == [0] * (len(counts) - 1), counts
    return counts.index(20)


class TestRegions:
    def scene(self, count: int = 6, near: int = 3, margin: float = 0.05) -> Scene:
        scene = Scene(count, region="here", region_margin=margin)
        for number, worker in enumerate(scene.workers):
            worker.region = "here" if number < near else "there"
        scene.pool.workers = tuple(scene.workers)
        return scene

    @pytest.mark.parametrize("count", [6, 60])
    def test_near_ones_come_first(self, count: int):
        counts = self.scene(count).chosen(90)
        assert sum(counts[3:]) == 0
        assert min(counts[:3]) > 5

    def test_others_get_what_they_are_expected_to_answer_sooner_by_the_margin(self):
        scene = self.scene()
        for number, worker in enumerate(scene.workers):
            scene.answer(worker, 0.14 if number < 3 else 0.1)
        assert sum(scene.chosen(60)[3:]) == 0
        for worker in scene.workers[:3]:
            scene.answer(worker, 0.3)
        assert sum(scene.chosen(60)[:3]) == 0

    def test_where_no_near_one_takes_calls_others_do(self):
        scene = self.scene()
        for worker in scene.workers[:3]:
            worker.drained = True
            worker.changed()
        assert sum(scene.chosen(60)[3:]) == 60
        assert sum(scene.chosen(20, session="s")[3:]) == 20

    def test_sessions_live_near(self):
        scene = self.scene()
        assert {home_of(scene, session=f"s-{number}") for number in range(30)} == {0, 1, 2}

    @pytest.mark.parametrize("far", [0, 6])
    @pytest.mark.parametrize("count", [6, 60])
    def test_sessions_stay_where_they_live_while_all_near_ones_are_as_busy(self, count: int, far: int):
        scene = self.scene(count, margin=1.0)
        homes = [home_of(scene, session=f"s-{number}") for number in range(20)]
        for number, worker in enumerate(scene.workers):
            worker.inflight = 6 if number < 3 else far
        scene.chosen(60)
        scene.plugin.tail.decided["session"] = 0
        assert [scene.workers.index(scene.choose(scene.call(session=f"s-{number}"))) for number in range(20)] == homes
        assert scene.plugin.tail.decided["session"] == 20

    def test_a_near_one_with_far_more_than_its_share_is_passed_over_however_soon_it_seems(self):
        scene = self.scene(margin=1.0)
        for number, worker in enumerate(scene.workers):
            scene.answer(worker, 0.2 if number else 0.1)
            worker.inflight = 6
        scene.chosen(60)
        scene.workers[0].inflight = 40
        assert scene.chosen(200)[0] < 20

    def test_where_both_near_ones_that_were_drawn_are_far_worse_all_are_looked_at(self):
        scene = self.scene(margin=0.01)
        for number, worker in enumerate(scene.workers):
            scene.answer(worker, 5.0 if number in (0, 1, 3, 4) else 0.1)
        scene.chosen(60)
        counts = scene.chosen(200)
        assert counts[2] + counts[5] == 200

    @pytest.mark.parametrize("weight", [0.0, 1.0])
    def test_a_region_that_nobody_is_in_makes_no_difference(self, weight: float):
        scene = self.scene(near=0)
        for worker in scene.workers:
            worker.weight = weight
        scene.pool.workers = tuple(scene.workers)
        assert min(scene.chosen(300)) > 20
