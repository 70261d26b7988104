"""Failures of single requests, as a proxy meets them."""

import json
from typing import Any

import pytest
from fakes import run, until
from sim_client import (
    CHAT,
    COMPLETIONS,
    HELLO,
    STREAM,
    begin,
    capture,
    contents,
    fetch,
    get,
    read_answer,
    running,
    turns,
)
from tailrace.worker.sim import Fault, ManualClock


def test_hanging_request_is_read_and_never_answered() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="hang", count=1))
            reader, writer = await begin(sim)
            await until(lambda: sim.engine.load == 1)
            assert (await fetch(sim, CHAT, STREAM)).ended
            assert reader._buffer == b""  # type: ignore[attr-defined]
            writer.close()
            await until(lambda: sim.engine.load == 0)

    run(ask())


def test_stalled_stream_says_no_more_and_keeps_its_place() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10) as sim:
            sim.fail(Fault(fail="stall", after_tokens=2, count=1))
            reader, writer = await begin(sim)
            await until(lambda: sim.scheduler.running == 1)
            clock.advance(60)
            raw = await reader.readuntil(b'"content":"')
            await turns()
            raw += await reader.read(65536)
            assert contents(read_answer(raw)) == 2
            assert sim.scheduler.running == 1
            writer.close()
            await until(lambda: sim.scheduler.running == 0)

    run(ask())


def test_stall_before_the_first_token_sends_the_head_alone() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="stall", count=1))
            reader, writer = await begin(sim)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
            await turns()
            assert reader._buffer == b""  # type: ignore[attr-defined]
            writer.close()

    run(ask())


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/messages", "/v1/responses"])
def test_half_an_event(path: str) -> None:
    async def ask() -> None:
        async with running() as sim:
            body = STREAM | {"prompt": "a", "input": "a", "max_output_tokens": 9}
            whole = await fetch(sim, path, body)
            sim.fail(Fault(fail="half_event", after_tokens=3, count=1))
            answer = await fetch(sim, path, body)
            assert not answer.ended
            assert not answer.raw.endswith(b"\n\n\r\n")
            assert len(answer.chunks) < len(whole.chunks)
            assert len(answer.chunks[-1]) < len(whole.chunks[len(answer.chunks) - 1])
            assert sim.scheduler.running == 0
            assert (await fetch(sim, path, body)).ended

    run(ask())


def test_garbage_event_and_then_the_stream_goes_on() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="garbage_event", after_tokens=2, count=1))
            answer = await fetch(sim, CHAT, STREAM)
            assert answer.ended
            broken = [chunk for chunk in answer.chunks if not is_event(chunk)]
            assert len(broken) == 1
            assert broken[0].startswith(b"data: {")
            assert answer.chunks.index(broken[0]) == 1 + 2
            assert len(answer.chunks) == 1 + 9 + 1 + 1

    run(ask())


def is_event(chunk: bytes) -> bool:
    data = chunk.removeprefix(b"data: ").strip()
    try:
        return data == b"[DONE]" or bool(json.loads(data))
    except ValueError:
        return False


@pytest.mark.parametrize("kind", ["cut", "half_event", "garbage_event"])
def test_broken_unary_answers(kind: Any) -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail=kind, after_tokens=3, count=1))
            reader, writer = await begin(sim, CHAT, HELLO | {"max_tokens": 9})
            if kind == "garbage_event":
                raw = await reader.readuntil(b"mess")
            else:
                raw = await reader.read()
            writer.close()
            head, _, body = raw.partition(b"\r\n\r\n")
            length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            assert length == len(body) if kind == "garbage_event" else length > len(body) > 0
            with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
                json.loads(body)
            assert sim.scheduler.running == 0

    run(ask())


@pytest.mark.parametrize("after", [None, 0, 100])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/messages", "/v1/responses", "/v1/embeddings"])
def test_every_unary_answer_can_be_cut(path: str, after: int | None) -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="cut", after_tokens=after, count=1))
            for cut in (True, False):
                body = HELLO | {"max_tokens": 9, "prompt": "a", "input": "a", "max_output_tokens": 9}
                reader, writer = await begin(sim, path, body)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                body_read = await reader.read() if cut else await reader.readexactly(length)
                assert (0 < len(body_read) < length) == cut
                writer.close()
            await until(lambda: sim.engine.load == 0)

    run(ask())


def test_refusals_on_demand() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="queue_full", count=1))
            sim.fail(Fault(fail="rate_limited", count=1, retry_after=7))
            sim.fail(Fault(fail="error", count=1, status=502, message="bad luck"))
            full = await fetch(sim, CHAT, STREAM)
            assert full.body == read_answer(capture("overload_admission")).body
            limited = await fetch(sim, CHAT, STREAM)
            assert limited.status == 429
            assert b"retry-after: 7" in limited.head
            broken = await fetch(sim, CHAT, STREAM)
            assert (broken.status, broken.json["error"]["message"]) == (502, "bad luck")
            assert (await fetch(sim, CHAT, STREAM)).status == 200
            assert sim.engine.load == 0

    run(ask())


def test_unhealthy_is_only_about_health() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="unhealthy"))
            assert (await get(sim, "/health")).status == 503
            assert (await fetch(sim, CHAT, STREAM)).status == 200
            sim.heal()
            assert (await get(sim, "/health")).status == 200

    run(ask())


def test_slowness_stretches_everything() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, ttft_ms=20, itl_ms=10) as sim:
            sim.fail(Fault(fail="slow", factor=3))
            _, writer = await begin(sim)
            await until(lambda: sim.scheduler.running == 1)
            clock.advance(0.059)
            assert sim.metrics.generation_tokens == 0
            clock.advance(0.002 + 0.030)
            assert sim.metrics.generation_tokens == 2
            writer.close()

    run(ask())


def test_fault_strikes_its_route_its_count_and_its_share() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="error", route="/v1/completions", count=2))
            assert (await fetch(sim, CHAT, STREAM)).status == 200
            statuses = [(await fetch(sim, COMPLETIONS, {"prompt": "a"})).status for _ in range(3)]
            assert statuses == [500, 500, 200]
            sim.fail(Fault(fail="error", share=0.5))
            statuses = [(await fetch(sim, COMPLETIONS, {"prompt": "a"})).status for _ in range(40)]
            assert 8 < statuses.count(500) < 32
            assert (await get(sim, "/v1/models")).status == 200

    run(ask())
