"""What it is worth to go where a prompt's beginning was met, told by what it saves, and how much an engine lets in."""

from __future__ import annotations

import pytest
from route_scene import Scene, taught
from tailrace.plugins.route.worth import Worth

pytestmark = pytest.mark.interpreted
LONG = "Of mills and their races. " * 100


def prompt(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{number} {LONG}"}]


def told(scene: Scene, *, met: float, new: float) -> None:
    """Twenty prompts, each twice to one worker: what the first time took, and the second."""
    for number in range(20):
        for took in (new, met):
            call = scene.call(messages=prompt(number))
            scene.choose(call)
            attempt = scene.send(call, to=scene.workers[number % 2])
            scene.commit(attempt, took)
            scene.end(attempt)
            scene.complete(call)


def homes(scene: Scene) -> int:
    """How many of the prompts go where they were met, with somewhat more to do there than elsewhere."""
    for worker in scene.workers:
        worker.inflight = 8
    scene.chosen(60)
    count = 0
    for number in range(20):
        home = scene.workers[number % 2]
        home.inflight = 9
        tempo = scene.tempo(number % 2)
        tempo.backlog = 400  # 50 ms of other prompts stand before it
        count += scene.choose(scene.call(messages=prompt(number))) is home
        home.inflight = 8
        tempo.backlog = 0
    return count


def test_a_cache_that_saves_time_is_worth_a_wait(monkeypatch: pytest.MonkeyPatch):
    scene = Scene(2, decay=1000.0)
    aimed(scene, monkeypatch)
    told(scene, met=0.05, new=0.2)
    assert homes(scene) >= 18


def test_a_cache_that_saves_nothing_is_not(monkeypatch: pytest.MonkeyPatch):
    scene = Scene(2, decay=1000.0)
    aimed(scene, monkeypatch)
    told(scene, met=0.1, new=0.1)
    assert homes(scene) <= 2


def aimed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each prompt's key lead to the worker that it is sent to."""
    call, lessons = scene.call(), scene.plugin.lessons
    ring = lessons.grounds_of(call, scene.workers[0], lessons.trip_of(call)).ring
    places: dict[int, int] = {}
    for number in range(20):
        call = scene.call(messages=prompt(number))
        scene.plugin.tail._aimed(call)
        trip = scene.plugin.lessons.trip_of(call)
        places[trip.first] = places[trip.second] = number % 2
    monkeypatch.setattr(type(ring), "lead", lambda self, key, among, besides=None: scene.workers[places[key]])


def test_nothing_is_told_by_few():
    worth = Worth()
    for _ in range(7):
        worth.note(0.1, met=True)
    for _ in range(20):
        worth.note(0.1, met=False)
    assert worth.share == 1.0
    worth.note(0.1, met=True)
    assert worth.share == 0.0


@pytest.mark.parametrize(("met", "share"), [(0.02, 1.0), (0.05, 1.0), (0.075, 0.5), (0.1, 0.0), (0.3, 0.0)])
def test_what_is_saved_is_what_it_is_worth(met: float, share: float):
    worth = Worth()
    for _ in range(10):
        worth.note(met, met=True)
        worth.note(0.1, met=False)
    assert worth.share == pytest.approx(share)


def reports(scene: Scene, number: int, *reports: tuple[int, int]) -> float:
    for running, waiting in reports:
        scene.report(number, running, waiting)
        scene.tempo(number).hear(scene.workers[number])
    slots: float = scene.tempo(number).slots
    return slots


def reported(*told: tuple[int, int]) -> float:
    return reports(taught(0.1, 0.1), 0, *told)


def test_what_an_engine_lets_in_shows_while_others_wait():
    full = ((7, 0), (10, 2), (8, 0), (10, 1), (9, 0))
    assert reported(*full) == 0.0
    assert reported(*full, (10, 3)) == 10.0
    assert reported(*full, (10, 3), (4, 0)) == 10.0
    assert reported(*full, (10, 3), (12, 1)) == 0.0


def test_calls_that_wait_for_prompts_say_nothing_of_that():
    assert reported((9, 0), (5, 1), (6, 2), (6, 3), (6, 1), (5, 1), (9, 0), (9, 0), (9, 0)) == 0.0


def test_engines_of_a_pool_are_taken_to_be_alike_until_they_show_otherwise():
    scene = taught(0.1, 0.1)
    assert reports(scene, 1, (3, 0)) == 0.0
    assert reports(scene, 0, (10, 1), (10, 1), (10, 1)) == 10.0
    assert reports(scene, 1, (4, 0)) == 10.0
    assert reports(scene, 1, (11, 0)) == 0.0
    assert reports(scene, 0, (5, 0)) == 10.0


def test_what_is_declared_of_a_pools_workers_holds_until_one_shows_otherwise():
    scene = Scene(2)
    scene.pool.concurrency = 8
    scene.answer(scene.workers[0], 0.1)
    assert reports(scene, 0, (4, 0)) == 8.0
    assert reports(scene, 0, (9, 0)) == 0.0
