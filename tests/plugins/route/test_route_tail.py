"""The choice by predicted time to first token: what is learnt, from what, and how soon it is forgotten."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from route_scene import Scene, taught
from tailrace.proxy.fault import bad_answer, connection_lost
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.pipeline import Link
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.watch.exposition import Load
from tailrace.proxy.watch.scraping import Scraper

pytestmark = pytest.mark.interpreted


def test_the_sooner_of_two_gets_the_call():
    assert taught(0.1, 0.5).chosen(50) == [50, 0]


def test_two_are_drawn_so_that_one_that_looks_best_does_not_get_everything():
    counts = taught(0.10, 0.11, 0.12, 0.13).chosen(600)
    assert counts[0] == pytest.approx(300, abs=60)
    assert counts[1] == pytest.approx(200, abs=60)
    assert counts[3] == 0


def test_where_both_that_were_drawn_are_far_worse_the_others_are_looked_at():
    scene = taught(0.1, 0.1, 5.0, 5.0)
    scene.chosen(50)
    counts = scene.chosen(300)
    assert counts[2] == counts[3] == 0


def test_a_slow_answer_counts_at_once_and_fades():
    scene = taught(0.1, 0.1)
    scene.answer(scene.workers[0], 2.0)
    assert scene.chosen(50) == [0, 50]
    scene.now += 60.0
    assert min(scene.chosen(400)) > 50


def test_a_worker_that_is_slow_again_when_it_is_tried_is_left_alone_again():
    scene = taught(0.1, 0.1)
    scene.answer(scene.workers[0], 2.0)
    scene.now += 60.0
    scene.answer(scene.workers[0], 2.0)
    assert scene.chosen(50) == [0, 50]


def test_faster_answers_are_believed_bit_by_bit():
    scene = taught(1.0, 0.5)
    scene.answer(scene.workers[0], 0.1)
    assert scene.chosen(50) == [0, 50]
    for _ in range(300):
        scene.answer(scene.workers[0], 0.1)
    assert scene.chosen(50)[0] == 50


def test_sizes_are_learnt_apart():
    scene = Scene(2, prefix=0)
    scene.answer(scene.workers[0], 0.1, tokens=50)
    scene.answer(scene.workers[1], 0.11, tokens=50)
    scene.answer(scene.workers[0], 3.0, tokens=8000)
    scene.answer(scene.workers[1], 0.5, tokens=8000)
    assert scene.chosen(50, tokens=8000) == [0, 50]
    assert scene.tempo(0).alone(0, scene.now) == pytest.approx(0.1, rel=0.3)


def test_whole_answers_say_nothing_of_first_content():
    scene = taught(0.1, 0.1)
    scene.answer(scene.workers[0], 20.0, stream=False)
    assert scene.tempo(0).alone(0, scene.now) == pytest.approx(0.1, rel=0.1)


def test_a_worker_that_nothing_is_known_of_is_expected_to_be_as_usual():
    scene = Scene(3)
    for worker in scene.workers[:2]:
        scene.answer(worker, 0.4)
    known, unknown = scene.tempo(0), scene.plugin.lessons.grounds_of(scene.call(), scene.workers[0], trip(scene))
    fresh = unknown.tempo_of(scene.workers[2])
    assert fresh.predict(scene.workers[2], 0, scene.now) == pytest.approx(
        known.predict(scene.workers[0], 0, scene.now), rel=0.1
    )


def trip(scene: Scene):
    return scene.plugin.lessons.trip_of(scene.call())


def test_an_unknown_load_is_neither_none_nor_endless():
    scene = Scene(3)
    for number, worker in enumerate(scene.workers):
        scene.answer(worker, 0.1)
        scene.report(number, 0, 20)
    scene.chosen(400, tokens=200)
    scene.report(2, None, None)
    mean = scene.chosen(300, tokens=200)
    assert mean[2] < 250, "unknown is taken for idle"
    scene.report(0, 0, 0)
    scene.report(1, 0, 0)
    assert scene.chosen(100, tokens=200)[2] <= 40, "unknown is taken for idle beside idle ones"


def test_a_reported_queue_counts_with_the_usual_prompt():
    scene = taught(0.1, 0.1)
    scene.report(0, 5, 30)
    scene.report(1, 5, 0)
    assert scene.chosen(50) == [0, 50]


def test_a_bare_engines_metrics_count_before_its_health_is_asked_for_again():
    scene = taught(0.1, 0.1)
    for number, worker in enumerate(scene.workers):
        worker.standing.seen = scene.now
        scene.report(number, 0, 0)
    scene.chosen(20)
    scene.now += 0.5
    worker = scene.workers[0]
    Scraper(worker, SimpleNamespace(now=scene.now), lambda: 0.5)._take(Load(40, 200, 0.5, 0.0, 0.0), scene.now)
    assert worker.standing.seen < scene.now
    assert scene.chosen(50) == [0, 50]


def test_what_we_sent_ourselves_is_not_counted_twice_in_a_report():
    scene = taught(0.1, 0.1)
    sent = [scene.send(scene.call(), to=scene.workers[0]) for _ in range(6)]
    scene.report(0, 1, 5)
    scene.chosen(5)
    assert scene.tempo(0).waiting == 0.0
    assert scene.tempo(0).hidden == 0.0
    for attempt in sent:
        scene.end(attempt, AttemptEnd.CANCELLED)


def test_a_worker_whose_places_are_taken_lets_the_next_call_wait_for_an_end():
    scene = taught(0.1, 0.1)
    for worker in scene.workers:
        attempt = scene.send(scene.call(), to=worker)
        scene.commit(attempt, 0.1)
        scene.now += 3.9
        scene.end(attempt)
    for number, (running, places) in enumerate(((8, 8), (8, 16))):
        scene.workers[number].standing.concurrency = places
        scene.report(number, running, 0)
    full, roomy = (scene.tempo(number).predict(scene.workers[number], 0, scene.now) for number in (0, 1))
    assert full - roomy == pytest.approx(scene.tempo(0).usual.busy / 8, rel=0.05)
    assert scene.chosen(50) == [0, 50]


def test_who_has_far_more_than_its_share_is_passed_over_however_soon_it_seems():
    scene = taught(0.1, 0.2, 0.2, 0.2)
    for worker in scene.workers:
        worker.inflight = 6
    scene.chosen(60)
    before = scene.chosen(200)[0]
    scene.workers[0].inflight = 40
    assert before > 80
    assert scene.chosen(200)[0] < 20


def test_prompts_that_have_no_content_yet_are_work_before_the_next():
    scene = taught(0.1, 0.1)
    scene.send(scene.call(4000), to=scene.workers[0])
    scene.workers[1].inflight += 1
    assert scene.chosen(50) == [0, 50]


def test_a_wait_behind_other_prompts_does_not_make_a_worker_slow():
    scene = taught(0.2, 0.2)
    slope = scene.tempo(0).usual.slope
    first = scene.send(scene.call(20000), to=scene.workers[0])
    second = scene.send(scene.call(), to=scene.workers[0])
    scene.now += 20000 * slope
    scene.commit(second, 0.2)
    assert scene.tempo(0).alone(0, scene.now) == pytest.approx(0.2, rel=0.1)
    scene.end(second)
    scene.end(first, AttemptEnd.CANCELLED)


def test_the_way_to_a_worker_is_no_part_of_what_is_learnt_of_it():
    scene = Scene(2)
    scene.workers[0].connections.round_trip = 0.3
    scene.answer(scene.workers[0], 0.4)
    assert scene.tempo(0).alone(0, scene.now) == pytest.approx(0.1, rel=0.1)


ENDS = {
    "won": lambda scene, attempt: (scene.commit(attempt, 0.1), scene.end(attempt)),
    "unfinished": lambda scene, attempt: (
        scene.commit(attempt, 0.1),
        scene.end(attempt, AttemptEnd.FAILED, connection_lost(sent=True)),
    ),
    "failed": lambda scene, attempt: scene.end(attempt, AttemptEnd.FAILED, bad_answer("x")),
    "cancelled": lambda scene, attempt: scene.end(attempt, AttemptEnd.CANCELLED),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_backlog_is_exact_however_an_attempt_ends(end: str):
    scene = taught(0.1, 0.1)
    call = scene.call(3000)
    attempt = scene.send(call)
    number = scene.workers.index(attempt.worker)
    tempo = scene.tempo(number)
    assert tempo.backlog == scene.plugin.lessons.backlog == pytest.approx(3000, abs=30)
    assert tempo.pending == 1
    ENDS[end](scene, attempt)
    scene.complete(call)
    assert (tempo.backlog, tempo.pending, scene.plugin.lessons.backlog) == (0, 0, 0)


class Veto(Plugin[None]):
    """Lets nobody have the first attempts."""

    Config = type(None)

    def __init__(self, times: int) -> None:
        super().__init__(None)
        self.left = times

    def on_chosen(self, call, attempt):
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("again", [False, True])
def test_an_attempt_that_another_plugin_vetoed_leaves_nothing(again: bool):
    scene = Scene(2, Link(Veto(1), "veto"))
    call = scene.call(3000)
    assert scene.send(call, to=scene.workers[0]) is None
    if again:
        attempt = scene.send(call, to=scene.workers[1])
        assert scene.tempo(0).backlog == 0
        assert scene.tempo(1).backlog > 0
        scene.commit(attempt, 0.1)
        scene.end(attempt)
    scene.complete(call)
    assert all(worker.learnt[key].backlog == 0 for worker in scene.workers for key in worker.learnt)
    assert scene.plugin.lessons.backlog == 0
