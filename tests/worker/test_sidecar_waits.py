"""A sidecar whose engine is not there, or does not warm up: what its log, its gateway and its clients are told."""

from __future__ import annotations

import logging

import pytest
from fakes import Connection, RawClient, Request, Upstream, json_answer, run, until
from sidecars import CHAT, HELLO, found, sidecar, url_of, worker_settings
from tailrace.proxy.roll import described
from tailrace.proxy.watch.feed import PATH
from tailrace.worker.engine import lives, told
from tailrace.worker.engine.state import EngineState, Phase
from tailrace.worker.gate import Gate, GateConfig
from tailrace.worker.report import Report
from tailrace.worker.sidecar import running


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "FIRST", 0.05)


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_an_engine_that_cannot_be_reached_is_told_of_until_it_can(caplog: pytest.LogCaptureFixture):
    why = "no connection (Connection refused)"

    async def body():
        async with Upstream(json_answer({"data": []})) as upstream:
            upstream.refuse()
            async with running(worker_settings(found(upstream.url))) as side, RawClient(url_of(side)) as client:
                await until(lambda: side.report.engine.reason)
                (engine,) = side.workers()
                assert described(engine)["standing"]["reason"] == why
                await client.request("GET", PATH)
                await client.read_head()
                state = await client.read_chunk()
                assert b'"ready":false' in state[0]
                assert f'"reason":"engine: {why}"'.encode() in state[0]
                async with RawClient(url_of(side)) as other:
                    refused = (await other.post(CHAT, HELLO)).json()["error"]
                assert refused["message"] == f"The worker's engine is starting: {why}."
                async with RawClient(url_of(side)) as other:
                    unready = await other.get("/readyz")
                reasons = [f"the engine is starting: {why}"]
                assert (unready.status, unready.json()) == (503, {"status": "unready", "reasons": reasons})
                assert side.unready() == reasons
                await until(lambda: len(lines(caplog)) == 3)
                assert set(lines(caplog)) == {f"waiting for the engine at {upstream.url}: {why}"}
                times = [record.created for record in caplog.records if record.levelno == logging.WARNING]
                assert times[2] - times[1] > times[1] - times[0]
                caplog.clear()
                await upstream.listen_again()
                await until(lambda: side.report.takes_calls)
                assert side.report.engine.reason == ""
                assert [line for line in lines(caplog, logging.INFO) if line.startswith("engine ready after")]

    with caplog.at_level(logging.INFO):
        run(body())


def test_an_engine_of_somebody_elses_that_dies_is_not_said_to_be_started(caplog: pytest.LogCaptureFixture):
    why = "no connection (Connection refused)"

    async def body():
        async with Upstream(json_answer({"data": []})) as upstream, sidecar(found(upstream.url)) as side:
            upstream.refuse()
            for conn in upstream.connections:
                conn.rst()
            await until(lambda: side.report.engine.dead and side.report.engine.reason == why)
            gone = f"engine gone: {why}, 3 times in a row; it is asked until it answers again"
            assert gone in lines(caplog)
            assert "Cannot connect" not in caplog.text
            async with RawClient(url_of(side)) as client:
                refused = (await client.post(CHAT, HELLO)).json()["error"]
            assert (refused["code"], refused["message"]) == (
                "worker_unavailable",
                f"The worker's engine is gone: {why}.",
            )

    run(body())


def test_a_warm_up_that_gets_no_answer_is_told_of(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    async def silent(conn: Connection, request: Request) -> None:
        if request.method == "GET":
            await conn.send(json_answer({"data": []}))
        else:
            await conn.wait_closed()

    monkeypatch.setattr(lives, "LONG", 0.1)

    async def body():
        async with Upstream(silent) as upstream:
            settings = worker_settings(found(upstream.url).replace("warmup: {kind: 'off'}, ", ""))
            async with running(settings) as side:
                await until(lambda: lines(caplog))
                said = "engine warming up for 0 s: no answer to prompt 1 yet"
                assert lines(caplog)[0] == said
                assert said in lines(caplog, logging.INFO)
                assert side.report.engine.reason == said.removeprefix("engine ")

    with caplog.at_level(logging.INFO):
        run(body())


def test_a_suspect_engine_is_told_of_and_its_words_only_to_operators():
    def said(phase: Phase, reason: str, *, own: bool) -> tuple[list[str], list[str]]:
        report = Report(Gate(GateConfig(concurrency=1, queue=1, queue_timeout=1.0)), own_engine=own)
        report.update(EngineState(phase=phase, reason=reason), draining=False)
        return report.unready(), report.unready(whole=True)

    doubtful = "the engine does not answer, or its work makes no progress"
    assert said(Phase.READY, "", own=True) == ([], [])
    assert said(Phase.SUSPECT, "no token for 30 s", own=False) == ([f"{doubtful}: no token for 30 s"],) * 2
    assert said(Phase.SUSPECT, "no token for 30 s", own=True) == ([doubtful], [f"{doubtful}: no token for 30 s"])
    assert said(Phase.DEAD, "it said secrets", own=True)[0] == ["the engine is gone"]
