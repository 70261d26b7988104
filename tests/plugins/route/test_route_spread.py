"""Where calls go by predicted time: weights, bursts, and what outlives a reload."""

from __future__ import annotations

import pytest
from route_scene import Scene, taught

pytestmark = pytest.mark.interpreted


def test_the_way_to_a_worker_counts():
    scene = Scene(2)
    scene.workers[0].connections.round_trip = 0.2
    assert scene.chosen(50) == [0, 50]


def test_weights_are_kept():
    scene = Scene(3)
    for worker, weight in zip(scene.workers, (6.0, 1.0, 1.0), strict=True):
        worker.weight = weight
        scene.answer(worker, 0.1)
    scene.pool.workers = tuple(scene.workers)
    counts = scene.chosen(400)
    assert counts[0] > 200
    scene.workers[2].weight = 0.0
    scene.pool.workers = tuple(scene.workers)
    assert scene.chosen(100)[2] == 0


def test_however_heavy_a_worker_is_another_one_is_looked_at():
    scene = taught(2.0, 0.1)
    scene.workers[0].weight = 1e6
    scene.pool.workers = tuple(scene.workers)
    assert scene.chosen(40) == [0, 40]


def test_who_has_no_weight_is_not_looked_at_where_others_are_bad():
    scene = taught(0.1, 0.1, 0.1)
    scene.chosen(40)
    scene.workers[2].weight = 0.0
    scene.pool.workers = tuple(scene.workers)
    for worker in scene.workers[:2]:
        scene.answer(worker, 3.0)
    assert scene.chosen(40)[2] == 0


def test_a_burst_spreads_because_choices_count_at_once():
    scene = taught(0.1, 0.1, 0.1, 0.1)
    for number in range(4):
        scene.report(number, 0, 0)
    for _ in range(80):
        scene.send(scene.call())
    loads = [worker.inflight for worker in scene.workers]
    assert max(loads) <= 24


def test_what_was_learnt_outlives_a_reload():
    scene = taught(0.1, 0.9)
    later = Scene(2)
    later.now = scene.now
    later.workers[:] = scene.workers
    later.pool.workers = tuple(scene.workers)
    for worker in later.workers:
        worker.pools = [later.pool]
    later.pool.rebuild()
    assert later.chosen(50) == [50, 0]


def test_what_is_usual_outlives_a_reload_too():
    scene = taught(0.9, 0.9)
    scene.now += 1000.0
    later = Scene(3)
    later.now = scene.now
    later.workers[:2] = scene.workers
    later.pool.workers = tuple(later.workers)
    for worker in later.workers:
        worker.pools = [later.pool]
    later.pool.rebuild()
    later.chosen(50)
    assert later.tempo(2).alone(0, later.now) == pytest.approx(0.9, rel=0.1)
