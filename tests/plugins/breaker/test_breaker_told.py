"""What the `breaker` plugin tells operators: lines of the log, and how each worker stands."""

from __future__ import annotations

import logging

import pytest
from breaking import BROKEN, half_open, host
from fakes import run
from tailrace.plugins.breaker.panel import states

pytestmark = pytest.mark.interpreted


def test_log_lines(monkeypatch, tmp_path, caplog):
    async def body():
        with host(monkeypatch, tmp_path) as h:
            half_open(h)
            h.answers(fault=BROKEN)
            h.tick(10.1)
            h.answers()
            h.tick()
            h.answers()

    with caplog.at_level(logging.WARNING):
        run(body())
    assert [record.getMessage() for record in caplog.records] == [
        "worker a gets no calls for 5.0 s: 5 faults in a row (http_error)",
        "worker a gets no calls for 10.0 s: its probe failed (http_error)",
        "worker a gets calls again, step by step: its probe went well",
    ]


def test_the_last_of_a_pool_is_told_of_as_such(monkeypatch, tmp_path, caplog):
    async def body():
        with host(monkeypatch, tmp_path, workers="ab") as h:
            panel = h.plugins[0].panel
            h.break_down()
            assert dict(states(panel._board, h.now)) == {"a": 2}
            for _ in range(5):
                assert h.answers(fault=BROKEN) == "b"
            assert dict(states(panel._board, h.now)) == {"a": 2, "b": 2}, "the one that was out before is in again"
            for _ in range(20):
                h.tick()
            assert dict(states(panel._board, h.now)) == {"a": 3, "b": 2}
        with host(monkeypatch, tmp_path / "alone", workers="a") as h:
            h.break_down()
            assert dict(states(h.plugins[0].panel._board, h.now)) == {"a": 3}
            h.tick(5.1)
            assert dict(states(h.plugins[0].panel._board, h.now)) == {"a": 1}
            assert h.answers() == "a"
            assert dict(states(h.plugins[0].panel._board, h.now)) == {"a": 0}

    with caplog.at_level(logging.WARNING):
        run(body())
    told = [record.getMessage() for record in caplog.records]
    assert told[1] == "worker b gets no calls for 5.0 s: 5 faults in a row (http_error)"
    assert told[2] == (
        "worker a should get no calls for 5.0 s, but as one of the last of its pool it still does: "
        "5 faults in a row (http_error)"
    )
