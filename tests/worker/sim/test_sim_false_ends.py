"""Answers that end as if all was well, or say what is not so."""

from typing import Any

import pytest
from fakes import run, until
from sim_client import CHAT, COMPLETIONS, HELLO, STREAM, begin, contents, fetch, get, read_answer, running
from tailrace.worker.sim import Fault, ManualClock

EVERY = [CHAT, COMPLETIONS, "/v1/messages", "/v1/responses"]
BODY = HELLO | {"prompt": "the mill", "input": "a", "max_tokens": 9, "max_output_tokens": 9}
USAGE = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def reasons(answer: Any) -> list[str]:
    choices = [choice for event in answer.events if isinstance(event, dict) for choice in event.get("choices", ())]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_aborted_stream_says_so_and_ends(path: str) -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="abort", after_tokens=3, count=1))
            body = BODY | {"stream": True, "return_token_ids": True}
            answer = await fetch(sim, path, body)
            assert reasons(answer) == ["abort"]
            choice = answer.events[-2]["choices"][0]
            assert (choice["token_ids"], choice.get("text", choice.get("delta"))) in (([], ""), ([], {"content": ""}))
            assert (answer.events[-1], answer.ended) == ("[DONE]", True)
            ids = [token for event in answer.events[:-1] for token in event["choices"][0].get("token_ids") or ()]
            assert len(ids) == 3
            assert sim.scheduler.running == 0
            assert sim.metrics.finish_reasons == {"abort": 1}
            assert reasons(await fetch(sim, path, body)) == ["length"]
            # At the very beginning there is no choice to say it of, as in a server that drains.
            sim.fail(Fault(fail="abort", count=1))
            empty = await fetch(sim, path, body)
            assert (reasons(empty), empty.events[-1], empty.ended) == ([], "[DONE]", True)

    run(ask())


def test_aborted_answer_in_one_piece() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="abort", after_tokens=2, count=1))
            answer = await fetch(sim, COMPLETIONS, BODY | {"logprobs": 1, "return_token_ids": True})
            [choice] = answer.json["choices"]
            assert (choice["finish_reason"], len(choice["token_ids"])) == ("abort", 2)

    run(ask())


@pytest.mark.parametrize("path", EVERY)
def test_error_in_the_middle_of_one_answer(path: str) -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="error_event", after_tokens=3, count=1, message="Internal server error"))
            answer = await fetch(sim, path, BODY | {"stream": True})
            if path in (CHAT, COMPLETIONS):
                told = {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}
                assert (answer.events[-2], answer.events[-1]) == ({"error": told}, "[DONE]")
                assert answer.ended
            elif path == "/v1/messages":
                assert "'message': 'In...am'" in answer.events[-1]["error"]["message"]
                assert answer.ended
            else:
                assert not answer.ended
            assert sim.scheduler.running == 0
            assert (await fetch(sim, path, BODY | {"stream": True})).ended
            sim.fail(Fault(fail="error_event", after_tokens=3, count=1, message="Internal server error"))
            refused = await fetch(sim, path, BODY)
            assert (refused.status, refused.json["error"]["message"]) == (500, "Internal server error")

    run(ask())


@pytest.mark.parametrize("kind", ["false_end", "false_done"])
@pytest.mark.parametrize("path", EVERY)
def test_stream_that_ends_without_a_reason(path: str, kind: Any) -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail=kind, after_tokens=3, count=1))
            answer = await fetch(sim, path, BODY | {"stream": True})
            assert answer.ended
            assert (answer.events[-1] == "[DONE]") == (kind == "false_done")
            assert reasons(answer) == []
            assert sim.scheduler.running == 0
            if path == CHAT:
                assert contents(answer) == 3
                sim.fail(Fault(fail=kind, after_tokens=3, count=1))
                assert (await fetch(sim, path, BODY)).json["choices"][0]["finish_reason"] is None

    run(ask())


def told(answer: Any) -> list[tuple[int, int]]:
    """Prompt and completion tokens, wherever the answer tells them."""
    bodies = [event for event in answer.events if isinstance(event, dict)] or [answer.json]
    objects = [body.get("response", body.get("message", body)).get("usage") or body.get("usage") for body in bodies]
    names = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
    return [(one[a], one[b]) for one in objects if one for a, b in names if b in one]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", EVERY)
def test_usage_that_is_not_so(path: str, stream: bool) -> None:
    async def ask() -> None:
        async with running() as sim:
            body = BODY | (USAGE if stream else {})
            [*_, (prompt, said)] = told(await fetch(sim, path, body))
            assert said == 9
            sim.fail(Fault(fail="wrong_usage", factor=3, count=1))
            assert told(await fetch(sim, path, body))[-1] == (prompt * 3, 27)
            sim.fail(Fault(fail="wrong_usage", completion_tokens=-1, count=1))
            assert told(await fetch(sim, path, body))[-1] == (prompt, -1)
            sim.fail(Fault(fail="no_usage", count=1))
            silent = await fetch(sim, path, body)
            # What a stream of messages tells as it begins cannot be left out.
            assert told(silent) == ([(prompt, 0)] if path == "/v1/messages" and stream else [])
            assert silent.status == 200
            assert told(await fetch(sim, path, body))[-1] == (prompt, 9)

    run(ask())


def test_usage_that_runs_along_is_wrong_from_the_first_chunk() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="wrong_usage", factor=2))
            for path in (CHAT, COMPLETIONS):
                counts = [said for _, said in told(await fetch(sim, path, BODY | USAGE | {"max_tokens": 3}))]
                assert counts == [*([0] if path == CHAT else []), 2, 4, 6, 6]

    run(ask())


def test_wrong_usage_goes_beside_another_fault() -> None:
    async def ask() -> None:
        async with running() as sim:
            for kind in ("wrong_usage", "slow", "abort"):
                sim.fail(Fault(fail=kind, after_tokens=3))  # type: ignore[arg-type]
            answer = await fetch(sim, CHAT, BODY | USAGE)
            assert (reasons(answer), told(answer)[-1][1]) == (["abort"], 30)

    run(ask())


@pytest.mark.parametrize("rst", [False, True])
def test_connection_that_ends_without_a_byte(rst: bool) -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="drop", count=1, rst=rst))
            reader, writer = await begin(sim)
            if rst:
                with pytest.raises(ConnectionResetError):
                    await reader.read()
            else:
                assert await reader.read() == b""
            writer.close()
            await until(lambda: sim.engine.load == 0)
            assert (await get(sim, "/health")).status == 200

    run(ask())


def test_answer_that_is_no_http() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.fail(Fault(fail="not_http", count=1))
            reader, writer = await begin(sim)
            raw = await reader.read()
            assert raw
            assert not raw.startswith(b"HTTP")
            writer.close()
            await until(lambda: sim.engine.load == 0)

    run(ask())


def test_a_refusal_may_say_when_to_come_again() -> None:
    async def ask() -> None:
        async with running() as sim:
            for kind, given, shown in (
                ("rate_limited", None, [b"retry-after: 1"]),
                ("queue_full", None, []),
                ("queue_full", 3, [b"retry-after: 3"]),
                ("error", None, []),
                ("error", 0.2, [b"retry-after: 1"]),
            ):
                sim.fail(Fault(fail=kind, count=1, retry_after=given))  # type: ignore[arg-type]
                head = (await fetch(sim, CHAT, STREAM)).head
                assert [line for line in head if line.startswith(b"retry-after")] == shown

    run(ask())


def test_throttled_engine_is_slow_for_those_that_run_too() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10, faults=(Fault(fail="throttle", factor=2),)) as sim:
            reader, writer = await begin(sim)
            await until(lambda: sim.scheduler.running == 1)
            clock.advance(0.045)
            assert sim.metrics.generation_tokens == 3
            sim.fail(Fault(fail="throttle", factor=3))
            clock.advance(0.020)
            assert sim.metrics.generation_tokens == 4
            clock.advance(0.050)
            assert sim.metrics.generation_tokens == 4
            clock.advance(0.010)
            assert sim.metrics.generation_tokens == 5
            sim.heal()
            clock.advance(0.100)
            assert contents(read_answer(await reader.readuntil(b"0\r\n\r\n"))) == 9
            writer.close()

    run(ask())


def test_gray_failure_slows_few_and_leaves_the_others_alone() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10) as sim:
            sim.fail(Fault(fail="slow", factor=10, share=0.2))
            opened = [await begin(sim) for _ in range(40)]
            await until(lambda: sim.scheduler.running == 40)
            clock.advance(0.100)
            assert 2 <= sim.scheduler.running <= 16
            clock.advance(0.8)
            assert sim.scheduler.running == 0
            for _, writer in opened:
                writer.close()

    run(ask())
