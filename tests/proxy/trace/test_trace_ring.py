"""What a process remembers of its calls: what happened, for how long, how many, and nothing that anybody wrote."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import orjson
import pytest
from fakes import (
    CHAT,
    GOOD,
    PATH,
    RawClient,
    Upstream,
    chat_chunk,
    event,
    gateway,
    json_answer,
    run,
    sse_answer,
    stream_of,
    until,
    yaml_for,
)
from tailrace.proxy.trace.context import TraceContext
from tailrace.proxy.trace.ring import Ring
from tailrace.proxy.trace.told import MOST, Record, chosen, matching

STREAM = {**CHAT, "stream": True}


async def asked(process: Any, body: Any = CHAT, path: str = PATH, headers: dict[str, str] | None = None) -> Any:
    async with RawClient(process.doors[0].shown) as client:
        return await client.post(path, body, headers)


def remembered(process: Any) -> list[Record]:
    return [Record.of(raw) for raw in process.service.ring.all()]


def test_a_call_that_went_well() -> None:
    async def body() -> None:
        async with Upstream(sse_answer(stream_of(["a", "b"]))) as upstream, gateway(yaml_for(upstream)) as process:
            answer = await asked(process, STREAM)
            [record] = remembered(process)
            assert record.id == answer.header("x-request-id")
            assert (record.route, record.model, record.served, record.stream) == ("chat", "m", "m", True)
            assert (record.method, record.path, record.status, record.ending) == ("POST", PATH, 200, "completed")
            assert record.flaw is None
            assert record.trace is None
            assert record.size == len(orjson.dumps(STREAM))
            assert record.delivered > len(answer.body)
            [tried] = record.tries
            assert (tried.number, tried.why, tried.worker, tried.end) == (1, "first", upstream.url, "won")
            assert (tried.status, tried.streaming, tried.flaw) == (200, True, None)
            assert record.started <= tried.began <= tried.sent <= tried.first <= record.finished
            assert record.first == tried.first
            assert record.stages is not None
            assert record.took >= record.stages.prefill + record.stages.decode

    run(body())


def test_attempts_that_failed_say_when_and_why() -> None:
    async def body() -> None:
        broken = json_answer({"error": {"message": "a prompt of somebody", "code": 500}}, status=500)
        async with Upstream(broken, GOOD) as upstream:
            async with gateway(yaml_for(upstream, plugins="[retry: {back_off: 1ms}]")) as process:
                assert (await asked(process)).status == 200
                [record] = remembered(process)
                first, second = record.tries
                assert (first.end, second.end, second.why) == ("failed", "won", "retry")
                assert first.flaw is not None
                assert (first.flaw.kind, first.flaw.whose) == ("http_error", "engine")
                assert first.began < first.ended <= second.began
                assert "somebody" not in repr(process.service.ring.all())

    run(body())


def test_where_nobody_listens_the_network_says_why() -> None:
    async def body() -> None:
        async with gateway(yaml_for("http://127.0.0.1:1")) as process:
            assert (await asked(process)).status == 503
            record = remembered(process)[0]
            assert record.flaw is not None
            assert record.flaw.whose == "network"
            assert record.flaw.why
            assert record.failed
            assert [raw[0] for raw in chosen(process.service.ring, "errors", 9)] == [record.id]

    run(body())


def test_nothing_that_anybody_wrote_is_remembered() -> None:
    canaries = ("secret-prompt", "secret-key", "secret-query", "secret-header", "secret-answer", "secret-error")

    async def body() -> None:
        wrong = json_answer({"error": {"message": "secret-error", "code": "secret-error"}}, status=400)
        said = sse_answer([event({"error": {"message": "secret-error", "code": 500}})])
        scripts = (sse_answer([chat_chunk("secret-answer"), event("[DONE]")]), wrong, said)
        async with Upstream(*scripts) as upstream, gateway(yaml_for(upstream)) as process:
            mine = {**STREAM, "messages": [{"role": "user", "content": "secret-prompt"}]}
            headers = {"authorization": "Bearer secret-key", "x-anything": "secret-header"}
            for _ in scripts:
                await asked(process, mine, f"{PATH}?key=secret-query", headers)
            assert len(remembered(process)) == 3
            told = repr(process.service.ring.all())
            assert not [canary for canary in canaries if canary in told]

    run(body())


def test_probes_are_not_remembered() -> None:
    async def body() -> None:
        async with gateway(yaml_for("http://127.0.0.1:1")) as process:
            async with RawClient(process.doors[0].shown) as client:
                assert (await client.get("/healthz")).status == 200
            assert remembered(process) == []

    run(body())


@pytest.mark.interpreted
def test_only_so_many_and_the_failed_ones_longer() -> None:
    ring = Ring(8)
    calls = [_Call(f"req_{number}", failed=number == 3) for number in range(40)]
    for call in calls:
        ring.note(call, call.outcome)  # type: ignore[arg-type]
    assert sorted(raw[0] for raw in ring.all()) == sorted(["req_3", *(f"req_{number}" for number in range(32, 40))])
    assert [raw[0] for raw in matching(ring, "req_3")] == ["req_3"]
    ring.bound(2, 900.0)
    assert {raw[0] for raw in ring.all()} == {"req_38", "req_39", "req_3"}
    ring.bound(2, 0.0)
    ring.visit(0.0)
    assert ring.all() == []


@pytest.mark.interpreted
def test_what_clients_are_refused_pushes_no_failure_out() -> None:
    ring = Ring(8)
    calls = [_Call("req_0", failed=True), *(_Call(f"req_{number}", refused=True) for number in range(1, 40))]
    for call in calls:
        ring.note(call, call.outcome)  # type: ignore[arg-type]
    assert [raw[0] for raw in matching(ring, "req_0")] == ["req_0"]


@pytest.mark.interpreted
def test_of_a_trace_with_many_calls_the_last_ones_are_given() -> None:
    ring = Ring(1000)
    for number in range(MOST + 50):
        call = _Call(f"req_{number}")
        call.trace = TraceContext(call.id, "4bf9" * 8, "c0ffee" * 2 + "00", "", 0)
        call.outcome.finished_ns = number
        ring.note(call, call.outcome)  # type: ignore[arg-type]
    assert [raw[0] for raw in matching(ring, "4bf9" * 8)] == [f"req_{number}" for number in range(50, MOST + 50)]


@pytest.mark.interpreted
def test_none_where_it_is_off() -> None:
    ring = Ring(0)
    call = _Call("req_1", failed=True)
    ring.note(call, call.outcome)  # type: ignore[arg-type]
    assert ring.all() == []


def test_the_slowest_first() -> None:
    async def body() -> None:
        waits = [0.0, 0.06, 0.02]

        async def slow(conn: Any, request: Any) -> None:
            await asyncio.sleep(waits.pop(0))
            await conn.send(GOOD)

        async with Upstream(slow) as upstream, gateway(yaml_for(upstream)) as process:
            ids = [(await asked(process)).header("x-request-id") for _ in range(3)]
            ring = process.service.ring
            assert [raw[0] for raw in chosen(ring, "slowest", 2)] == [ids[1], ids[2]]
            assert [raw[0] for raw in chosen(ring, "latest", 2)] == [ids[2], ids[1]]

    run(body())


def test_the_collector_has_nothing_to_look_through() -> None:
    async def body() -> None:
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream)) as process:
            for _ in range(20):
                await asked(process)
            await until(lambda: len(process.service.ring.all()) == 20)
            for _ in range(4):  # one for each level of tuples within tuples
                gc.collect()
            assert not [raw for raw in process.service.ring.all() if gc.is_tracked(raw)]

    run(body())


class _Call:
    """As much of a call as a record has of one that asked nobody."""

    def __init__(self, name: str, *, failed: bool = False, refused: bool = False) -> None:
        from types import SimpleNamespace

        from tailrace.proxy.fault import INTERNAL
        from tailrace.proxy.outcome import Ending, Outcome

        self.id, self.model, self.raw, self.source = name, "m", b"", ""
        self.trace: TraceContext | None = None
        self.entry = self.race = None
        self.tries: list[Any] = []
        self.stream = False
        self.started_ns = self.received_ns = self.waited_ns = self.requeued_ns = 0
        self.head = SimpleNamespace(method="POST")
        self.route = SimpleNamespace(name="chat", path=PATH, guarded=True)
        self.outcome = Outcome(Ending.FAILED if failed else Ending.COMPLETED, 200, INTERNAL if failed else None)
        if refused:
            self.outcome = Outcome(Ending.REFUSED, 404)
        self.outcome.finished_ns = 1

    def fact(self, kind: type) -> None:
        return None
