"""Each failure as a proxy meets it, byte for byte where there is a capture."""

import asyncio
import json
from typing import Any

import pytest
from sim_client import (
    CHAT,
    COMPLETIONS,
    HELLO,
    Answer,
    capture,
    connect,
    fetch,
    get,
    head_of,
    read_answer,
    run,
    running,
    turns,
    until,
)
from tailrace.worker.sim import Fault, ManualClock
from wire_shape import head_shape

STREAM = HELLO | {"stream": True, "max_tokens": 9}


async def begin(sim: Any, path: str = CHAT, body: dict[str, Any] = STREAM) -> Any:
    """Send a request on a connection that is kept alive."""
    reader, writer = await connect(sim)
    raw = json.dumps(body).encode()
    writer.write(head_of("POST", path, raw, {}) + raw)
    return reader, writer


async def rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
    raw = await reader.read()
    writer.close()
    return read_answer(raw)


def contents(answer: Answer) -> int:
    """How many chunks say something."""
    return sum(bool(e["choices"][0]["delta"].get("content")) for e in answer.events if "choices" in e)


def test_engine_killed_ends_streams_with_an_error_and_done() -> None:
    async def ask() -> None:
        async with running(itl_ms=1) as sim:
            unary = await begin(sim, CHAT, HELLO | {"max_tokens": 2000})
            await until(lambda: sim.scheduler.running == 1)
            sim.fail(Fault(fail="engine_killed", after_tokens=4))
            answer = await fetch(sim, CHAT, STREAM)
            real = capture("sigkill_enginecore_midstream")
            tail = b'a9\r\ndata: {"error": {'
            assert answer.raw[answer.raw.index(tail) :] == real[real.index(tail) :]
            assert contents(answer) == 4

            assert (await get(sim, "/health")).status == 503
            refused = await fetch(sim, CHAT, HELLO)
            assert refused.status == 500
            assert refused.json["error"]["message"].startswith("EngineCore encountered an issue.")
            assert sim.scheduler.running == 0
            sim.stop()
            assert (await rest(*unary)).body == refused.body

    run(ask())


def test_engine_killed_counts_tokens_and_tells_every_open_answer() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10) as sim:
            stream, unary, batch, message, response = (
                await begin(sim),
                await begin(sim, CHAT, HELLO | {"max_tokens": 50}),
                await begin(sim, COMPLETIONS, {"prompt": ["a", "b"], "stream": True}),
                await begin(sim, "/v1/messages", STREAM),
                await begin(sim, "/v1/responses", {"input": "hello", "stream": True}),
            )
            await until(lambda: sim.scheduler.running == 6)
            clock.advance(0.025)
            sim.fail(Fault(fail="engine_killed"))
            await until(lambda: sim.engine.load == 0)
            sim.stop()

            answers = [await rest(*one) for one in (stream, unary, batch, message, response)]
            assert contents(answers[0]) == 3
            for answer in (answers[0], answers[2]):
                assert answer.events[-2]["error"]["code"] == 500
                assert answer.events[-1] == "[DONE]"
                assert answer.ended
            assert (answers[1].status, answers[1].json["error"]["type"]) == (500, "InternalServerError")
            assert answers[3].chunks[-1].startswith(b'event: error\ndata: {"type":"error","error":{')
            assert answers[3].ended
            assert "error" in json.dumps(answers[4].events[-2])

    run(ask())


def test_engine_killed_takes_the_server_with_it_if_so_asked() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock) as sim:
            sim.fail(Fault(fail="engine_killed", exit_after_s=6))
            assert (await get(sim, "/health")).status == 503
            clock.advance(5.9)
            assert not sim.gone.is_set()
            clock.advance(0.2)
            assert sim.gone.is_set()
            await turns()
            with pytest.raises(ConnectionRefusedError):
                await connect(sim)

    run(ask())


@pytest.mark.parametrize("rst", [False, True])
@pytest.mark.parametrize("kind", ["server_killed", "cut"])
def test_connection_ends_in_the_middle(kind: Any, rst: bool) -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10) as sim:
            sim.fail(Fault(fail=kind, after_tokens=3, count=1, rst=rst))
            reader, writer = await begin(sim)
            await until(lambda: sim.scheduler.running == 1)
            clock.advance(0.025)
            raw = await reader.readuntil(b'"content":"')
            raw += await reader.read(65536)
            clock.advance(0.010)
            if rst:
                with pytest.raises(ConnectionResetError):
                    while data := await reader.read(65536):
                        raw += data
                    raise AssertionError("FIN where RST was asked for")
            else:
                raw += await reader.read()
            writer.close()
            answer = read_answer(raw)
            # As in the capture of a killed server: whole chunks, no finish, no [DONE], no last chunk.
            assert (contents(answer), answer.ended) == (3, False)
            assert raw.endswith(b"}]}\n\n\r\n")
            assert capture("sigkill_apiserver_midstream").endswith(b"}]}\n\n\r\n")
            assert head_shape(answer.head) == head_shape(read_answer(capture("sigkill_apiserver_midstream")).head)
            assert sim.scheduler.running == 0
            if kind == "server_killed":
                with pytest.raises(ConnectionRefusedError):
                    await connect(sim)
            else:
                assert (await get(sim, "/health")).status == 200

    run(ask())


def test_sigterm_without_a_timeout_hangs_streams_and_refuses_connections() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10) as sim:
            idle_reader, idle_writer = await connect(sim)
            reader, writer = await begin(sim)
            await until(lambda: sim.scheduler.running == 1 and sim.connections == 2)
            clock.advance(0.025)
            sim.terminate()
            clock.advance(0.020)
            raw = await reader.readuntil(b'"content":"')
            await turns()
            raw += await reader.read(65536)
            assert contents(read_answer(raw)) == 3
            assert raw.endswith(b"}]}\n\n\r\n")
            # The idle connection is closed, the stream says nothing for as long as one cares to wait.
            assert await idle_reader.read() == b""
            idle_writer.close()
            for _ in range(20):
                clock.advance(10)
                await turns(2)
            assert not reader.at_eof()
            assert reader._buffer == b""  # type: ignore[attr-defined]
            with pytest.raises(ConnectionRefusedError):
                await connect(sim)
            assert not sim.gone.is_set()
            writer.close()
            await until(lambda: sim.connections == 0)
            clock.advance(1)
            assert sim.gone.is_set()

    run(ask())


def test_sigterm_with_a_timeout_drains() -> None:
    async def ask() -> None:
        clock = ManualClock()
        knobs = {"served_model_names": ("smol",), "api_keys": ("key",), "enable_prompt_tokens_details": False}
        async with running(clock, itl_ms=10, shutdown_timeout=20, **knobs) as sim:
            key = {"authorization": "Bearer key"}
            body = json.dumps(STREAM | {"model": "smol"}).encode()
            reader, writer = await connect(sim)
            writer.write(head_of("POST", CHAT, body, key) + body)
            await until(lambda: sim.scheduler.running == 1)
            sim.terminate()
            assert (await get(sim, "/health")).status == 200
            for name, path, asked in (
                ("drain_new_chat", CHAT, HELLO | {"model": "smol"}),
                ("drain_new_stream", CHAT, STREAM | {"model": "smol"}),
                ("drain_new_completion", COMPLETIONS, {"model": "smol", "prompt": [9, 10, 11]}),
            ):
                real = read_answer(capture(name))
                answer = await fetch(sim, path, asked, authorization="Bearer key")
                assert head_shape(answer.head) == head_shape(real.head)
                if name == "drain_new_completion":
                    assert answer.json["usage"] == real.json["usage"]
                    assert answer.json["choices"] == real.json["choices"]
                    assert list(answer.json) == list(real.json)
                else:
                    assert answer.body == real.body
            text = await fetch(sim, COMPLETIONS, {"prompt": "text"}, authorization="Bearer key")
            assert text.json["error"]["message"] == "cannot schedule new futures after shutdown"
            ids = {"prompt": [9, 10], "stream": True}
            streamed = await fetch(sim, COMPLETIONS, ids, authorization="Bearer key")
            assert streamed.events[0]["choices"][0]["finish_reason"] == "abort"
            assert streamed.ended

            clock.advance(0.2)
            answer = read_answer(await reader.readuntil(b"0\r\n\r\n"))
            assert answer.events[-2]["choices"][0]["finish_reason"] == "length"
            assert answer.ended
            writer.close()
            await until(lambda: sim.connections == 0)
            clock.advance(0.2)
            assert sim.gone.is_set()

    run(ask())


def test_drain_that_takes_too_long_is_cut() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10, shutdown_timeout=1) as sim:
            reader, writer = await begin(sim, CHAT, STREAM | {"max_tokens": 2000})
            await until(lambda: sim.scheduler.running == 1)
            sim.terminate()
            clock.advance(1.2)
            answer = await rest(reader, writer)
            assert not answer.ended
            assert contents(answer) > 50
            assert sim.gone.is_set()

    run(ask())


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
            if kind == "cut":
                assert raw == b""
            else:
                head, _, body = raw.partition(b"\r\n\r\n")
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                assert length == len(body) if kind == "garbage_event" else length > len(body) > 0
                with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
                    json.loads(body)
            assert sim.scheduler.running == 0

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
