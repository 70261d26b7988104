"""The choice by predicted time to first token: what is learnt, from what, and how soon it is forgotten."""

from __future__ import annotations

import pytest
from route_scene import taught
from tailrace.proxy.answers import error_of
from tailrace.proxy.fault import connect_failed, no_worker
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.wire import parse_head

pytestmark = pytest.mark.interpreted


def test_a_fault_raises_what_is_expected_and_is_forgiven():
    scene = taught(0.1, 0.1)
    attempt = scene.send(scene.call(), to=scene.workers[0])
    scene.end(attempt, AttemptEnd.FAILED, connect_failed("refused"))
    assert scene.chosen(50) == [0, 50]
    assert scene.tempo(0).predict(scene.workers[0], 0, scene.now) == pytest.approx(5.1, abs=0.1)
    scene.now += 30.0
    assert min(scene.chosen(200)) > 50


def test_what_is_not_the_workers_fault_costs_it_nothing():
    scene = taught(0.1, 0.1)
    attempt = scene.send(scene.call(), to=scene.workers[0])
    scene.end(attempt, AttemptEnd.FAILED, no_worker("m"))
    assert min(scene.chosen(200)) > 50


def test_a_worker_that_refuses_until_later_is_believed():
    scene = taught(0.1, 0.1)
    attempt = scene.send(scene.call(), to=scene.workers[0])
    attempt.head = parse_head(b"HTTP/1.1 503 X\r\nretry-after: 0.4\r\nx-tailrace-load: running=9;waiting=0;unsent")
    attempt.status = 503
    scene.end(attempt, AttemptEnd.FAILED, error_of(attempt, b""))
    assert scene.tempo(0).predict(scene.workers[0], 0, scene.now) == pytest.approx(0.5, abs=0.05)


def test_a_bare_engine_that_is_full_is_believed_too():
    scene = taught(0.1, 0.1)
    attempt = scene.send(scene.call(), to=scene.workers[0])
    attempt.head = parse_head(b"HTTP/1.1 503 X\r\ncontent-type: application/json")
    attempt.status = 503
    busy = error_of(attempt, b'{"error":{"message":"The engine is currently busy.","code":503}}')
    scene.end(attempt, AttemptEnd.FAILED, busy)
    assert scene.tempo(0).predict(scene.workers[0], 0, scene.now) == pytest.approx(1.1, abs=0.1)


def test_the_loser_of_a_hedge_suffers():
    scene = taught(0.1, 0.1)
    call = scene.call()
    slow = scene.send(call, to=scene.workers[0])
    scene.now += 0.8
    fast = scene.send(call, to=scene.workers[1], why="hedge")
    scene.commit(fast, 0.1)
    scene.end(slow, AttemptEnd.CANCELLED)
    scene.end(fast)
    assert scene.tempo(0).alone(0, scene.now) == pytest.approx(0.9, rel=0.1)
    assert scene.chosen(50) == [0, 50]


def test_a_client_that_left_soon_says_nothing_against_a_worker():
    scene = taught(0.5, 0.5)
    before = scene.tempo(0).alone(0, scene.now)
    attempt = scene.send(scene.call(), to=scene.workers[0])
    scene.now += 0.05
    scene.end(attempt, AttemptEnd.CANCELLED)
    assert scene.tempo(0).alone(0, scene.now) == pytest.approx(before, rel=0.02)
