"""An engine without a sidecar that says it is full is known to be no broken one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import event, run
from racing import Course
from tailrace.plugins.breaker.outliers import blames
from tailrace.plugins.fallback import trouble_of
from tailrace.proxy.answers import error_event
from tailrace.proxy.sse import Splitter
from tailrace.proxy.wire import parse_head

pytestmark = pytest.mark.interpreted

CAPTURED = Path(__file__).parents[1] / "worker/sim/captures/raw/overload_admission.http"
BUSY, _, BODY = CAPTURED.read_bytes().partition(b"\r\n\r\n")


@pytest.mark.parametrize("loaded", [False, True], ids=["bare", "behind a sidecar"])
def test_vllms_own_words(loaded: bool, monkeypatch: pytest.MonkeyPatch):
    async def body() -> None:
        c = Course(monkeypatch, workers="a").start()
        c.a.accept()
        sink = c.a.sink
        sink.on_head(parse_head(BUSY + (b"\r\nx-tailrace-load: running=9;waiting=9;kv=0.50" if loaded else b"")))
        sink.on_data(BODY)
        sink.on_end()
        fault = c.fault
        assert fault is not None
        assert (fault.kind, fault.status, fault.retryable, fault.body) == ("overloaded", 503, True, BODY)
        assert not blames(fault)
        assert trouble_of(fault) == "overloaded"
        c.finish()

    run(body())


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (503, b'{"error":{"message":"EngineCore encountered an issue.","code":503}}'),
        (500, BODY),
        (503, b"<html>engine is currently busy</html>"),
    ],
)
def test_other_errors_speak_against_their_worker(status: int, told: bytes, monkeypatch: pytest.MonkeyPatch):
    async def body() -> None:
        c = Course(monkeypatch, workers="a").start()
        c.a.accept()
        c.a.status(status, told)
        assert c.fault is not None
        assert c.fault.kind == "http_error"
        assert blames(c.fault)
        c.finish()

    run(body())


def test_a_stream_that_begins_with_it():
    attempt: Any = SimpleNamespace(head=SimpleNamespace(load=b""))
    for text, kind in (("The engine is currently busy.", "overloaded"), ("boom", "error_event")):
        (found,) = Splitter(1 << 16).feed(event({"error": {"message": text, "code": 503}}))
        assert error_event(attempt, found).kind == kind
