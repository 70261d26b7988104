"""Where sessions and prefixes lead, when they are passed over, and what regions change."""

from __future__ import annotations

from collections import Counter

import pytest
from route_scene import Scene, worker_at
from tailrace.plugins.route.familiar import Familiar
from tailrace.proxy.choosing import candidates_for, choose
from tailrace.proxy.fault import connect_failed
from tailrace.proxy.fleet import MAX_CANDIDATES, ModelEntry, Pool
from tailrace.proxy.outcome import AttemptEnd

pytestmark = pytest.mark.interpreted
LONG = "Of mills and their races. " * 100


def chat(first: str, *later: str) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": first}]
    for number, content in enumerate(later):
        messages.append({"role": ("assistant", "user")[number % 2], "content": content})
    return messages


def home_of(scene: Scene, **asked) -> int:
    """Where such calls go while nothing is under way: all to one place."""
    counts = scene.chosen(20, **asked)
    assert sorted(counts)[:-1] == [0] * (len(counts) - 1), counts
    return counts.index(20)


@pytest.mark.parametrize("count", [2, 4, 8, 9, 40])
def test_a_session_stays_with_its_worker(count: int):
    scene = Scene(count)
    homes = {home_of(scene, session=f"s-{number}") for number in range(12)}
    assert len(homes) > 1


@pytest.mark.parametrize("count", [4, 40])
def test_two_gateways_agree_on_where_a_session_is(count: int):
    one, other = Scene(count), Scene(count)
    for number in range(10):
        assert home_of(one, session=f"s-{number}") == home_of(other, session=f"s-{number}")


@pytest.mark.parametrize("count", [4, 40])
def test_a_conversation_that_goes_on_stays_in_one_place(count: int):
    scene = Scene(count)
    home_of(scene, messages=chat(LONG, "It is.", "Why?"))
    assert home_of(scene, messages=chat(LONG, "It is.", "Why?")) == home_of(
        scene, messages=chat(LONG, "It is.", "Why?", "So.", "Oh.")
    )


def test_what_a_place_has_not_met_yet_is_not_worth_a_wait():
    scene = Scene(2, decay=1000.0)
    for worker in scene.workers:
        scene.answer(worker, 0.1)
    for _ in range(40):
        scene.answer(scene.workers[0], 0.19)
    unmet = [scene.choose(scene.call(messages=chat(f"{number} {LONG}"))) for number in range(40)]
    assert set(unmet) == {scene.workers[1]}
    for number in range(40):
        call = scene.call(messages=chat(f"{number} {LONG}"))
        scene.choose(call)
        scene.end(scene.send(call, to=scene.workers[0]), AttemptEnd.CANCELLED)
    met = {scene.choose(scene.call(messages=chat(f"{number} {LONG}"))) for number in range(40)}
    assert met == set(scene.workers)


def test_what_was_met_long_ago_is_not_worth_a_wait_either():
    familiar = Familiar()
    familiar.visit(5, 1000.0)
    assert familiar.met(5, 1300.0)
    assert not familiar.met(6, 1300.0)
    assert not familiar.met(5, 1000.0 + 15 * 60)
    assert not familiar.met(5, 3000.0)
    assert not familiar.met(7, 100.0)


def test_above_its_share_of_the_load_a_place_is_passed_over():
    scene = Scene(4)
    home = home_of(scene, session="s")
    for worker in scene.workers:
        worker.inflight = 8
    scene.chosen(60, session="s")
    assert home_of(scene, session="s") == home
    scene.workers[home].inflight = 14
    counts = scene.chosen(60, session="s")
    assert counts[home] == 0
    assert scene.plugin.tail.spilled > 0
    scene.workers[home].inflight = 9
    assert scene.chosen(20, session="s")[home] == 20


def test_the_second_place_is_the_same_for_all():
    scene = Scene(6)
    home = home_of(scene, session="s")
    for worker in scene.workers:
        worker.inflight = 8
    scene.chosen(60, session="x")
    scene.workers[home].inflight = 14
    assert max(scene.chosen(40, session="s")) == 40


def test_work_that_others_sent_is_load_too():
    scene = Scene(4)
    home = home_of(scene, session="s")
    for number in range(4):
        scene.report(number, 30 if number == home else 8, 0)
    scene.chosen(60)
    assert scene.chosen(40, session="s")[home] == 0


def test_a_slow_place_is_passed_over_however_idle_it_is():
    scene = Scene(4)
    home = home_of(scene, session="s")
    for number, worker in enumerate(scene.workers):
        scene.answer(worker, 3.0 if number == home else 0.1)
    assert scene.chosen(40, session="s")[home] == 0


def test_a_place_whose_worker_fails_is_passed_over():
    scene = Scene(4)
    home = home_of(scene, session="s")
    attempt = scene.send(scene.call(), to=scene.workers[home])
    scene.end(attempt, AttemptEnd.FAILED, connect_failed("refused"))
    assert scene.chosen(40, session="s")[home] == 0
    scene.now += 60.0
    assert home_of(scene, session="s") == home


def test_a_place_that_takes_no_calls_hands_its_sessions_on_and_gets_them_back():
    scene = Scene(4)
    before = {f"s-{number}": home_of(scene, session=f"s-{number}") for number in range(20)}
    gone = scene.workers[before["s-0"]]
    gone.drained = True
    gone.changed()
    for session, home in before.items():
        now = home_of(scene, session=session)
        assert (now == home) is (scene.workers[home] is not gone)
    gone.drained = False
    gone.changed()
    assert {session: home_of(scene, session=session) for session in before} == before


def test_where_two_pools_share_workers_a_session_leads_into_its_own():
    scene = Scene(4)
    other = Pool("q", [*scene.workers[2:], worker_at("http://10.9.9.9:8000")])
    entry = ModelEntry("n", other, "n")
    other.attach(entry)
    for worker in other.workers:
        worker.pools.append(other)
    other.rebuild()
    scene.entry = entry
    homes = {scene.choose(scene.call(session=f"s-{number}")) for number in range(60)}
    assert homes == set(other.workers)


def test_an_attempt_elsewhere_is_chosen_by_what_is_known_there():
    """A fallback leads into another pool: its ring and its weights count then."""
    scene, other = Scene(3), Scene(3)
    call = scene.call(session="s")
    scene.send(call)
    weights = (1.0, 0.0, 0.0)
    for worker, weight in zip(other.workers, weights, strict=True):
        worker.weight = weight
    other.pool.workers = tuple(other.workers)
    chosen = {choose(call, other.workers, scene.pipeline.score_workers) for _ in range(30)}
    assert chosen == {other.workers[0]}


def test_who_joins_gets_sessions_and_who_leaves_loses_them():
    scene = Scene(3)
    sessions = [f"s-{number}" for number in range(30)]
    before = [home_of(scene, session=session) for session in sessions]
    late = worker_at("http://10.0.0.77:8000")
    late.pools.append(scene.pool)
    scene.workers.append(late)
    scene.pool.workers = tuple(scene.workers)
    scene.pool.rebuild()
    after = [home_of(scene, session=session) for session in sessions]
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {3}
    scene.pool.workers = tuple(scene.workers[:3])
    scene.pool.rebuild()
    assert [home_of(scene, session=session) for session in sessions] == before


def test_of_many_workers_those_that_took_no_calls_a_moment_ago_get_theirs_again():
    scene = Scene(20)
    home = home_of(scene, session="s")
    for drained in (True, False):
        scene.workers[home].drained = drained
        scene.workers[home].changed()
        assert (home_of(scene, session="s") == home) is not drained


@pytest.mark.parametrize("count", [3, 12])
def test_the_second_place_is_another_one(count: int):
    scene = Scene(count)
    for number in range(40):
        session = f"s-{number}"
        home = home_of(scene, session=session)
        scene.workers[home].inflight = 50
        scene.plugin.tail.decided["second"] = 0
        scene.choose(scene.call(session=session))
        assert scene.plugin.tail.decided["second"] == 1
        scene.workers[home].inflight = 0


def test_of_many_workers_the_places_are_among_the_candidates():
    scene = Scene(40)
    for number in range(10):
        call = scene.call(session=f"s-{number}")
        candidates = candidates_for(call, scene.entry, None)
        assert len(candidates) == len(set(candidates)) == MAX_CANDIDATES
        assert scene.choose(call) in candidates


def test_of_many_workers_all_get_their_share_of_what_leads_nowhere():
    scene = Scene(40)
    counts = Counter(scene.chosen(4000))
    assert min(scene.chosen(4000)) > 40, counts


def test_a_session_has_its_place_in_the_small_pool_of_a_fallback_too():
    scene, fallback = Scene(12), Scene(4)
    for number in range(20):
        call = scene.call(session=f"s-{number}")
        scene.send(call)
        scene.plugin.tail.decided["session"] = 0
        led = choose(call, fallback.workers, scene.pipeline.score_workers)
        assert fallback.workers.index(led) == home_of(fallback, session=f"s-{number}")
        assert scene.plugin.tail.decided["session"] == 1
