"""Workers that are only silent: another one is asked, and whoever has something to show first has the stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cases.scene import END, Scene, errors_of
from fakes import PATH, Connection, Request, Script, chunked, json_answer, run, sending, sse_head, until
from lost import ASK, DONE, PLUGINS, PROMPT, STEPS, Engine, held_at, is_whole, losing, pausing, role, token, usages
from tailrace.proxy.fault import DRAINED
from tailrace.proxy.outcome import AttemptEnd, Ending

IMPATIENT = PLUGINS.replace("rescue,", "{rescue: {silence: 200ms}},")
NOT_FOUND = sending(json_answer({"detail": "Not Found"}, 404))


class Slow(Engine):
    """Says nothing between two of its tokens until it may go on; dies behind another one, if it is to."""

    def __init__(self, after: int = 2, dies: int = 0, silent: int = 0) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self._after, self._dies, self._silent = after, dies, silent
        self.on[PATH] = self._slowly

    async def _slowly(self, conn: Connection, request: Request) -> None:
        await conn.send(sse_head() + chunked(role()))
        for number in range(1, 7):
            text = "" if number == self._silent else None
            await conn.send(chunked(token(number, finish=number == 6, text=text)))
            if number == self._after and not await self._may_go_on(conn):
                return
            if number == self._dies:
                conn.close()
                return
        await conn.send(chunked(DONE) + END)

    async def _may_go_on(self, conn: Connection) -> bool:
        gone = asyncio.ensure_future(conn.wait_closed())
        going = asyncio.ensure_future(self.go.wait())
        await asyncio.wait({gone, going}, return_when=asyncio.FIRST_COMPLETED)
        for task in (gone, going):
            task.cancel()
        return self.go.is_set()


def kinds(scene: Scene) -> list[tuple[int, Any, str]]:
    return [
        (attempt.number, end, "" if attempt.fault is None else attempt.fault.kind)
        for attempt, end in zip(scene.witness.attempts, scene.witness.ends, strict=True)
    ]


OTHERS: dict[str, tuple[str, Script]] = {
    "refuses": ("/tokenize", NOT_FOUND),
    "has other tokens": (
        "/tokenize",
        sending(json_answer({"count": 4, "max_model_len": 99, "tokens": [1, 2, 3, 4]})),
    ),
    "is busy": ("/v1/completions", sending(json_answer({"error": {"message": "busy", "code": 503}}, 503))),
}


@pytest.mark.parametrize("other", OTHERS)
def test_it_is_waited_for_where_nobody_can_go_on(other: str) -> None:
    """As without a rescue, and nobody is asked again and again."""

    async def body() -> None:
        victim, second = Engine(), Engine()
        path, second.on[path] = OTHERS[other]
        victim.on[PATH] = pausing(1.0)
        async with losing(victim, second, plugins=IMPATIENT) as scene:
            assert is_whole((await scene.ask(ASK)).body)
            assert second.paths().count(path) == 1
            outcome = await scene.outcome()
            assert (outcome.ending, outcome.fault) == (Ending.COMPLETED, None)
            assert scene.witness.attempts[-1].number == 1
            assert scene.witness.ends[-1] is AttemptEnd.WON

    run(body())


@pytest.mark.parametrize("path", STEPS)
def test_it_has_the_stream_when_it_speaks_first(path: str) -> None:
    async def body() -> None:
        victim = Slow()
        second, held = held_at(path)
        async with losing(victim, second, plugins=IMPATIENT) as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            assert not scene.witness.ends
            victim.go.set()
            rest = await client.read_until(b"[DONE]")
            assert (b"w6 " in rest, rest.count(b"w3 ")) == (True, 1)
            await held.left.wait()
            await scene.outcome()
            assert kinds(scene) == [(2, AttemptEnd.CANCELLED, ""), (1, AttemptEnd.WON, "")]

    run(body())


@pytest.mark.parametrize("silent", [0, 2])
def test_nothing_is_forgotten_of_what_it_said(silent: int) -> None:
    """Not even tokens without a text, which another worker would have made again."""

    async def body() -> None:
        victim, third = Slow(dies=4, silent=silent), Engine()
        second, held = held_at("/v1/completions")
        async with losing(victim, second, third, plugins=IMPATIENT) as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            assert second.bodies("/v1/completions")[0]["prompt"] == [*PROMPT, 101, *([] if silent else [102])]
            victim.go.set()
            assert b"w6 " in await client.read_until(b"[DONE]")
        assert third.bodies("/v1/completions")[0]["prompt"] == [*PROMPT, 101, 102, 103, 104]

    run(body())


@pytest.mark.parametrize("how", ["dies", "drains"])
def test_it_is_lost_while_the_other_one_is_asked(how: str) -> None:
    async def body() -> None:
        victim = Slow(dies=2)
        second, held = held_at("/v1/completions")
        async with losing(victim, second, plugins=IMPATIENT) as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            if how == "dies":
                scene.upstream.connections[-1].rst()
            else:
                next(iter(scene.process.service.connections)).call.stop(DRAINED)
            await until(lambda: scene.witness.ends)
            held.go.set()
            assert b"w6 " in await client.read_until(b"[DONE]")
            assert second.paths() == ["/tokenize", "/v1/completions"]
            await scene.outcome()
            assert kinds(scene) == [
                (1, AttemptEnd.FAILED, "connection_lost" if how == "dies" else DRAINED.kind),
                (2, AttemptEnd.WON, ""),
            ]

    run(body())


@pytest.mark.parametrize("answers", [True, False])
def test_the_limit_between_two_tokens_is_the_end_of_its_waiting(answers: bool) -> None:
    """It is that limit that the client is told of, and not how long one had patience."""

    async def body() -> None:
        victim = Slow()
        second, held = held_at("/tokenize")
        if not answers:
            victim.on["/tokenize"] = NOT_FOUND
            held._then = NOT_FOUND
        async with losing(victim, second, plugins=IMPATIENT, more="timeouts: {gap: 700ms}") as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            await until(lambda: scene.witness.ends)
            assert kinds(scene) == [(1, AttemptEnd.FAILED, "gap_timeout")]
            assert scene.upstream.closed_at or await until(lambda: scene.upstream.closed_at) is None
            held.go.set()
            if answers:
                assert b"w6 " in await client.read_until(b"[DONE]")
            else:
                told = await client.read_until(b'"error"') + await client.read_until(b"}")
                assert b"0.7 s" in told

    run(body())


def test_the_limit_of_the_whole_call_ends_both() -> None:
    async def body() -> None:
        second, held = held_at("/v1/completions")
        async with losing(Slow(), second, plugins=IMPATIENT, more="timeouts: {total: 800ms}") as scene:
            (error,) = errors_of((await scene.ask(ASK)).body)
            assert "total limit" in error["message"]
            await held.left.wait()
            await until(lambda: scene.upstream.closed_at)
            assert (await scene.outcome()).ending is Ending.DEADLINE

    run(body())


def test_a_client_that_leaves_leaves_both() -> None:
    async def body() -> None:
        second, held = held_at("/v1/completions")
        async with losing(Slow(), second, plugins=IMPATIENT) as scene:
            client = await scene.begin(ASK)
            await held.asked.wait()
            await client.close()
            await held.left.wait()
            await until(lambda: scene.upstream.closed_at)
            assert (await scene.outcome()).ending is Ending.CLIENT_GONE

    run(body())


@pytest.mark.parametrize("speaks", [True, False])
def test_one_that_went_on_may_fall_silent_itself(speaks: bool) -> None:
    async def body() -> None:
        second = Engine()
        third, held = held_at("/tokenize")
        go = asyncio.Event()

        async def slowly(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + chunked(token(3, chat=False)))
            await asyncio.wait({asyncio.ensure_future(go.wait()), asyncio.ensure_future(conn.wait_closed())},
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
            if go.is_set():
                events = [token(number, chat=False, finish=number == 6) for number in (4, 5, 6)]
                await conn.send(b"".join([chunked(event) for event in [*events, DONE]]) + END)

        second.on["/v1/completions"] = slowly
        async with losing(Engine("fin"), second, third, plugins=IMPATIENT) as scene:
            client = await scene.begin(ASK)
            await client.read_until(b"w3 ")
            await held.asked.wait()
            (go if speaks else held.go).set()
            rest = await client.read_until(b"[DONE]")
            assert [rest.count(b"w%d " % number) for number in (3, 4, 5, 6)] == [0, 1, 1, 1]
            await scene.outcome()
            ends = kinds(scene)
            assert ends[0] == (1, AttemptEnd.FAILED, "connection_lost")
            if speaks:
                assert ends[1:] == [(3, AttemptEnd.CANCELLED, ""), (2, AttemptEnd.WON, "")]
            else:
                assert ends[1:] == [(2, AttemptEnd.FAILED, "gap_timeout"), (3, AttemptEnd.WON, "")]
            go.set()

    run(body())


def test_what_only_its_usage_is_owed_of_ends_here_whoever_else_there_is() -> None:
    async def body() -> None:
        victim = Slow(after=6)
        async with losing(victim, Engine(), plugins=IMPATIENT) as scene:
            (worker,) = [each for each in scene.process.roster.workers if each.name == scene.upstreams[1].url]
            worker.drained = True
            worker.changed()
            answer = await scene.ask({**ASK, "stream_options": {"include_usage": True}})
            assert is_whole(answer.body)
            assert [each["completion_tokens"] for each in usages(answer.body)] == [6]

    run(body())
