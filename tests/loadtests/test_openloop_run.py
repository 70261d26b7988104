"""Runs against a scripted endpoint: outcomes, the schedule as the origin of time, connections."""

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import uvloop
from openloop.connections import Endpoint as Target
from openloop.figures import errors_of, figures_of, record_line
from openloop.options import parse_options
from openloop.record import Outcome
from openloop.run import Result, Run
from openloop.schedule import NS
from openloop.table import table
from scripted_endpoint import (
    DONE,
    GOOD_STREAM,
    HEAD,
    Endpoint,
    Step,
    chat_delta,
    chunk,
    close,
    event,
    plain,
    serving,
    stream,
)

Script = Callable[[int], list[Step]]


def measure(port: int, *arguments: str, meanwhile: Callable[[Run], object] | None = None) -> "asyncio.Task[Result]":
    options = parse_options(["--url", f"http://127.0.0.1:{port}", "--arrivals", "constant", *arguments], tty=False)
    run = Run(options, Target("127.0.0.1", port, "127.0.0.1", None))
    task = asyncio.get_running_loop().create_task(run.measure())
    if meanwhile is not None:
        meanwhile(run)
    return task


def run_against(script: Script, *arguments: str) -> tuple[Result, Endpoint]:
    async def body() -> tuple[Result, Endpoint]:
        async with serving(script) as endpoint:
            return await measure(endpoint.port, *arguments), endpoint

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(body())


async def hang() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param([GOOD_STREAM], Outcome.OK, id="ok"),
        pytest.param([stream(event({"error": {"code": 500}}), DONE)], Outcome.STREAM_ERROR, id="error event"),
        pytest.param([stream(chat_delta(content="a"))], Outcome.TRUNCATED, id="no DONE"),
        pytest.param([HEAD, chunk(chat_delta(content="a")), close], Outcome.TRUNCATED, id="chunks cut"),
        pytest.param([plain(b"full", "503 Busy")], Outcome.HTTP_ERROR, id="503"),
        pytest.param([close], Outcome.CONNECTION_FAILED, id="closed at once"),
        pytest.param([HEAD, hang], Outcome.TIMEOUT, id="hang"),
        pytest.param([b"what?\r\n", hang], Outcome.MALFORMED, id="not HTTP"),
    ],
)
def test_outcomes(answer: list[Step], outcome: Outcome) -> None:
    timeout = "0.1" if outcome is Outcome.TIMEOUT else "30"
    result, _ = run_against(lambda number: answer, "--rate", "100", "--duration", "0.03", "--timeout", timeout)
    assert [record.outcome for record in result.records] == [outcome] * 3
    assert errors_of(result) == (0 if outcome is Outcome.OK else 3, 3)


def test_a_refused_connection_is_counted_for_each_request() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused

        async def body() -> Result:
            return await measure(taken.getsockname()[1], "--rate", "100", "--duration", "0.03")

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(body())
    assert [record.error_kind() for record in result.records] == ["connection_failed"] * 3


def test_a_stalled_server_is_charged_for_all_that_was_due_meanwhile() -> None:
    held: list[int] = []

    async def stall() -> None:
        held.append(time.monotonic_ns())
        await asyncio.sleep(0.15)
        held.append(time.monotonic_ns())

    def script(number: int) -> list[Step]:
        return [stall, GOOD_STREAM] if number == 0 else [GOOD_STREAM]

    result, endpoint = run_against(script, "--rate", "100", "--duration", "0.1", "--connections", "1")
    assert endpoint.connections == 1
    first, *others = result.records
    assert first.total >= held[1] - held[0]
    for record in others:
        # Due while the only connection was held: sent later, and the wait is in both figures.
        assert record.sent >= held[1] > record.scheduled
        assert record.time_to_first_token is not None
        assert record.time_to_first_token >= held[1] - record.scheduled
    due = [record.scheduled - first.scheduled for record in result.records]
    assert due == [number * NS // 100 for number in range(10)]


def test_one_connection_carries_one_request_after_another() -> None:
    result, endpoint = run_against(lambda n: [GOOD_STREAM], "--rate", "100", "--duration", "0.1", "--connections", "1")
    assert endpoint.connections == 1
    assert [bool(record.connecting) for record in result.records] == [True] + [False] * 9


def test_without_keep_alive_each_request_has_a_connection_of_its_own() -> None:
    result, endpoint = run_against(lambda n: [GOOD_STREAM], "--rate", "100", "--duration", "0.05", "--no-keepalive")
    assert endpoint.connections == len(result.records) == 5
    assert all(record.connecting for record in result.records)


def test_a_closed_connection_makes_room_for_those_that_wait() -> None:
    result, endpoint = run_against(
        lambda n: [close] if n == 0 else [GOOD_STREAM], "--rate", "200", "--duration", "0.05", "--connections", "1"
    )
    assert [record.outcome for record in result.records] == [Outcome.CONNECTION_FAILED] + [Outcome.OK] * 9
    assert endpoint.connections == 2


def test_what_waits_for_a_connection_times_out_from_its_schedule() -> None:
    result, _ = run_against(
        lambda n: [hang], "--rate", "100", "--duration", "0.03", "--connections", "1", "--timeout", "0.1"
    )
    assert [record.outcome for record in result.records] == [Outcome.TIMEOUT] * 3
    assert all(record.total >= NS // 10 for record in result.records)


def test_an_interrupted_run_keeps_what_it_measured() -> None:
    async def body() -> Result:
        runs: list[Run] = []

        async def second_is_reached() -> None:
            runs[0].interrupt()
            await hang()

        async with serving(lambda n: [GOOD_STREAM] if n == 0 else [second_is_reached]) as endpoint:
            return await measure(endpoint.port, "--rate", "50", "--duration", "30", meanwhile=runs.append)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(body())
    assert result.interrupted
    assert result.records[0].outcome is Outcome.OK
    assert {record.outcome for record in result.records[1:]} == {Outcome.UNFINISHED}
    assert errors_of(result)[0] == 0


def test_figures_leave_out_the_warm_up_and_name_what_failed() -> None:
    arguments = ("--phases", "100x0.05,200x0.05", "--warmup", "0.05", "--connections", "1", "--header", "X-Key: secret")
    options = parse_options(["--url", "http://127.0.0.1:1", *arguments], tty=False)
    result, _ = run_against(lambda n: [plain(b"full", "503 Busy")] if n in (0, 7) else [GOOD_STREAM], *arguments)
    figures = figures_of(options, result)
    assert [phase["requests"] for phase in figures["phases"]] == [5, 10]
    assert [phase["errors"] for phase in figures["phases"]] == [{"http_503": 1}, {}]
    assert figures["phases"][0]["error_samples"] == {"http_503": "full"}
    assert figures["phases"][1]["latency_ms"]["itl"]["count"] == 10
    assert figures["phases"][1]["offered_per_s"] == 200
    assert "secret" not in repr(figures)
    text = table(figures)
    assert "errors: http_503 1" in text
    assert "loop lag" in text


def test_a_generator_that_lagged_voids_its_run() -> None:
    options = parse_options(["--url", "http://127.0.0.1:1", "--max-lag", "5"], tty=False)
    result = Result([], [0] * 98 + [6_000_000] * 2, [0, NS], NS, False, 0.5)
    figures = figures_of(options, result)
    assert figures["generator"]["void"]
    assert "VOID" in table(figures)


def test_a_record_line_counts_from_the_due_time() -> None:
    result, _ = run_against(lambda n: [GOOD_STREAM], "--rate", "100", "--duration", "0.01")
    line = record_line(result.records[0], result.phase_starts[0])
    assert (line["scheduled_ms"], line["outcome"], line["status"], len(line["gaps_ms"])) == (0, "ok", 200, 1)
    assert 0 <= line["sent_ms"] <= line["first_byte_ms"] <= line["ttft_ms"] <= line["end_ms"]
