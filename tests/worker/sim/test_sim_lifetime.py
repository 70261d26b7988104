"""How a whole server ends, as a proxy meets it: byte for byte where there is a capture."""

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
    connect,
    contents,
    fetch,
    get,
    read_answer,
    rest,
    running,
    turns,
)
from tailrace.worker.sim import Fault, ManualClock
from wire_shape import head_shape


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
            # As a real vLLM was seen to end: badly worded on messages, in the middle on responses.
            told = (
                b'event: error\ndata: {"type":"error","error":{"type":"internal_error","message":"2 validation errors'
            )
            assert answers[3].chunks[-1].startswith(told)
            assert len(answers[3].chunks[-1]) == 0x21C
            assert answers[3].ended
            assert answers[4].events[-1]["type"] == "response.output_text.delta"
            assert not answers[4].ended

    run(ask())


def test_sigterm_ends_a_server_whose_engine_is_dead() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="engine_killed"))
            sim.terminate(20)
            assert sim.gone.is_set()

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
            reader, writer = await begin(sim, CHAT, STREAM | {"model": "smol"}, **key)
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
            assert (streamed.events, streamed.ended) == (["[DONE]"], True)
            asked = ids | {"stream_options": {"include_usage": True}}
            counted = (await fetch(sim, COMPLETIONS, asked, authorization="Bearer key")).events
            assert (len(counted), counted[0]["choices"], counted[0]["usage"]["completion_tokens"]) == (2, [], 0)
            told = {"type": "InternalServerError", "message": "cannot schedule new futures after shutdown"}
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                refused = await fetch(sim, path, HELLO | {"model": "smol", "max_tokens": 5}, authorization="Bearer key")
                assert (refused.status, refused.json) == (500, {"type": "error", "error": told})
            for path, asked in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [9]})):
                assert (await fetch(sim, path, asked)).json["error"]["message"] == told["message"]
            unknown = await fetch(sim, CHAT, HELLO | {"model": "other"}, authorization="Bearer key")
            assert unknown.status == 404

            clock.advance(0.2)
            answer = read_answer(await reader.readuntil(b"0\r\n\r\n"))
            assert answer.events[-2]["choices"][0]["finish_reason"] == "length"
            assert answer.ended
            writer.close()
            await until(lambda: sim.connections == 0)
            clock.advance(0.2)
            assert sim.gone.is_set()

    run(ask())


def test_drain_that_takes_too_long_hangs_in_the_end() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10, shutdown_timeout=1) as sim:
            reader, writer = await begin(sim, CHAT, STREAM | {"max_tokens": 2000})
            await until(lambda: sim.scheduler.running == 1)
            sim.terminate()
            clock.advance(0.9)
            (await connect(sim))[1].close()
            clock.advance(0.2)
            # Seen at a real vLLM whose clients outstayed --shutdown-timeout: silence, and the server waits for them.
            raw = await reader.readuntil(b'"content":"')
            await turns()
            raw += await reader.read(1 << 20)
            clock.advance(60)
            await turns()
            assert reader._buffer == b""  # type: ignore[attr-defined]
            assert 80 < contents(read_answer(raw)) < 120
            assert not sim.gone.is_set()
            with pytest.raises(ConnectionRefusedError):
                await connect(sim)
            writer.close()
            await until(lambda: sim.connections == 0)
            clock.advance(1)
            assert sim.gone.is_set()

    run(ask())
