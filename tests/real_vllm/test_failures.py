"""Every way in which a real vLLM fails under running calls: none of them may look like a success to a client.

In each test one call of every kind is under way: a stream of each API and a whole answer. The engine is then killed,
stopped or told to end, and each client must see an error that its SDK raises. Those that leave a healthy engine come
first, because a start takes half a minute.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest
from fakes import until
from tailrace.proxy.outcome import Ending, Outcome

from real_vllm.engines import Vllm
from real_vllm.scene import HELLO, LONG, Scene, run, scene

CHAT: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": LONG}
SHORT = {**CHAT, "max_tokens": 4}
RAISED = (openai.APIError, anthropic.APIError, openai.APIConnectionError)
LOW_LIMITS = ("timeouts: {gap: 1.5, first_content_base: 4.0, unary: 4.0}",)


@dataclass
class Seen:
    """What one client saw: how many events, and the error that its SDK raised, None where it saw a good end."""

    events: int = 0
    error: Exception | None = None
    over: bool = False


async def follow(opening: Awaitable[AsyncIterator[Any]], seen: Seen) -> None:
    try:
        async for event in await opening:
            seen.events += 1
            # The Responses API tells of a failure in an event that its SDK does not raise on.
            if getattr(event, "type", "") in ("response.failed", "error"):
                raise openai.APIError(str(event), request=None, body=None)  # type: ignore[arg-type]
    except RAISED as error:
        seen.error = error
    finally:
        seen.over = True


async def whole(asking: Awaitable[Any], seen: Seen) -> None:
    try:
        await asking
    except RAISED as error:
        seen.error = error
    finally:
        seen.over = True


class Traffic:
    """One call of every kind, all begun: `streams` have had events, `unary` has not been answered."""

    def __init__(self, s: Scene, tokens: int = LONG) -> None:
        self._s = s
        self._tokens = tokens
        self.streams = {name: Seen() for name in ("chat", "completions", "messages", "responses")}
        self.unary = Seen()
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Return when every stream has had some events."""
        o, a = self._s.openai, self._s.anthropic
        chat = {**CHAT, "max_tokens": self._tokens}
        openings: dict[str, Any] = {
            "chat": o.chat.completions.create(**chat, stream=True),
            "completions": o.completions.create(model="tiny", prompt=[5, 6, 7], max_tokens=self._tokens, stream=True),
            "messages": a.messages.create(**chat, stream=True),
            "responses": o.responses.create(model="tiny", input="a", max_output_tokens=self._tokens, stream=True),
        }
        self._tasks = [asyncio.ensure_future(follow(openings[name], seen)) for name, seen in self.streams.items()]
        self._tasks.append(asyncio.ensure_future(whole(o.chat.completions.create(**chat), self.unary)))
        await until(
            lambda: self.over or all(seen.events > 12 for seen in self.streams.values()),
            lambda: f"some streams did not begin: {self.streams}",
            limit=60.0,
        )
        assert not self.over
        end = time.monotonic() + 10.0
        while (busy := await self._s.busy()) != (5, 0) and time.monotonic() < end:
            await asyncio.sleep(0.1)
        assert busy == (5, 0)

    @property
    def over(self) -> dict[str, Seen]:
        """The calls that have ended."""
        return {name: seen for name, seen in (self.streams | {"unary": self.unary}).items() if seen.over}

    async def end(self, others: int = 0) -> list[Outcome]:
        """Wait until all are over; the gateway's outcomes of them, and of so many other calls."""
        await asyncio.wait(self._tasks)
        return await self._s.outcomes(len(self._tasks) + others)

    def all_raised(self, *but: str) -> None:
        """Check that every client got an error."""
        unharmed = [name for name, seen in self.streams.items() if seen.error is None and name not in but]
        assert not unharmed, f"these streams ended as if they were whole: {unharmed}"
        assert self.unary.error is not None


Refusal = Callable[[Scene], Awaitable[Any]]


async def asks_in_vain(s: Scene, ask: Refusal) -> int:
    """The status that a new call is refused with."""
    with pytest.raises(openai.APIStatusError) as caught:
        await ask(s)
    return caught.value.status_code


def new_chat(s: Scene) -> Awaitable[Any]:
    return s.openai.chat.completions.create(**SHORT)


def test_the_engines_queue_is_full(engine):
    async def body():
        async with scene(engine) as s:
            many = [asyncio.ensure_future(s.openai.chat.completions.create(**CHAT, stream=True)) for _ in range(12)]
            refused = []

            def collect() -> bool:
                refused[:] = [task.exception() for task in many if task.done() and task.exception()]
                return len(refused) >= 4

            await until(collect, "4 of 12 were refused")
            assert {error.status_code for error in refused} == {503}
            assert all("busy" in error.message for error in refused)
            outcomes = await s.outcomes(len(refused))
            assert {(outcome.ending, outcome.status) for outcome in outcomes} == {(Ending.FAILED, 503)}
            for task in many:
                if task.done() and not task.exception():
                    await task.result().close()
                task.cancel()
            await asyncio.wait(many)
            await s.idle_engine(within=2.0)

    run(body())


async def answers_nothing_until_it_goes_on(engine: Vllm, kill: Callable[[signal.Signals], None]) -> None:
    """What happens while a part of an engine is stopped, and when it goes on; `kill` sends that part a signal."""
    async with scene(engine, more=LOW_LIMITS) as s:
        traffic = Traffic(s)
        await traffic.begin()
        kill(signal.SIGSTOP)
        try:
            outcomes = await traffic.end()
            traffic.all_raised()
            assert {outcome.status for outcome in outcomes} == {504}
            assert await asks_in_vain(s, new_chat) == 504
        finally:
            kill(signal.SIGCONT)
        await asyncio.sleep(0.2)
        await s.idle_engine(within=2.0)
        assert (await new_chat(s)).choices[0].finish_reason


def test_what_computes_is_stopped(engine):
    """It answers nothing, its health check says 200, and it may come back."""
    run(answers_nothing_until_it_goes_on(engine, engine.kill_core))


def test_the_api_server_is_stopped(engine):
    """The kernel still accepts its connections."""
    run(answers_nothing_until_it_goes_on(engine, engine.kill_server))


def test_the_engine_core_is_killed(engine):
    async def body():
        async with scene(engine) as s:
            traffic = Traffic(s)
            await traffic.begin()
            engine.kill_core()
            outcomes = await traffic.end()
            traffic.all_raised()
            assert {outcome.ending for outcome in outcomes} == {Ending.UPSTREAM_LOST, Ending.FAILED}
            assert [outcome.ending for outcome in outcomes].count(Ending.UPSTREAM_LOST) == 4
            assert all(outcome.status >= 500 for outcome in outcomes)
            assert await asks_in_vain(s, new_chat) >= 500
            await until(lambda: engine.gone, "the server ended itself")
            assert await asks_in_vain(s, new_chat) == 503

    run(body())


def test_the_api_server_is_killed(engine):
    async def body():
        async with scene(engine) as s:
            traffic = Traffic(s)
            await traffic.begin()
            engine.kill_server()
            outcomes = await traffic.end()
            traffic.all_raised()
            assert isinstance(traffic.unary.error, openai.APIStatusError)
            assert traffic.unary.error.status_code == 502
            assert {outcome.ending for outcome in outcomes} == {Ending.UPSTREAM_LOST, Ending.FAILED}
            assert {outcome.status for outcome in outcomes} == {502}
            assert engine.cores, "what computes outlives the server, which is why a sidecar must end it"
            assert await asks_in_vain(s, new_chat) == 503

    run(body())


def test_the_server_is_told_to_end_at_once(engine):
    """Without a shutdown timeout, its streams hang in silence over open connections, and only a limit ends them; or it
    gives all requests up and says so in each API's way, which in the Responses API is none: half an answer is marked
    as completed, and nobody can tell.
    """

    async def body():
        async with scene(engine, more=LOW_LIMITS) as s:
            traffic = Traffic(s)
            await traffic.begin()
            engine.kill_server(signal.SIGTERM)
            outcomes = await traffic.end()
            traffic.all_raised("responses")
            assert traffic.streams["responses"].events < LONG
            assert [outcome.status >= 500 for outcome in outcomes].count(True) >= 4
            assert [outcome.ending for outcome in outcomes].count(Ending.COMPLETED) <= 1
            assert await asks_in_vain(s, new_chat) >= 500

    run(body())


def test_the_server_is_told_to_end_in_its_own_time(engines):
    """Open streams finish and the health check goes on saying 200, but new calls get 500, or 200 with nothing in it."""
    engine = engines.running("--shutdown-timeout", "110")

    async def new_completion(s: Scene) -> Any:
        return await s.openai.completions.create(model="tiny", prompt=[5, 6, 7], max_tokens=4)

    async def new_completion_stream(s: Scene) -> Any:
        stream = await s.openai.completions.create(model="tiny", prompt=[5, 6, 7], max_tokens=4, stream=True)
        return [chunk async for chunk in stream]

    async def body():
        # The whole answer is its first content: long enough for the questions, short enough for a busy machine.
        async with scene(engine, more=("timeouts: {first_content_base: 100.0}",)) as s:
            traffic = Traffic(s, tokens=2000)
            await traffic.begin()
            engine.kill_server(signal.SIGTERM)
            await asyncio.sleep(0.5)
            assert engine.healthy
            new = [new_completion, new_completion_stream, new_completion, new_completion_stream, new_chat]
            statuses = [await asks_in_vain(s, ask) for ask in new]
            assert not traffic.over
            # 502 is the gateway's word for a 200 with nothing in it, 500 the engine's own.
            assert set(statuses[:4]) <= {500, 502}
            assert 502 in statuses[:4]
            assert statuses[4] == 500
            outcomes = await traffic.end(others=len(new))
            assert {(outcome.ending, outcome.status) for outcome in outcomes if outcome.status != 200} == {
                (Ending.FAILED, status) for status in statuses
            }
            assert [outcome.ending for outcome in outcomes].count(Ending.COMPLETED) == 5
            assert not any(seen.error for seen in (*traffic.streams.values(), traffic.unary))

    run(body())
