"""SSE: what a proper end of a stream is, with and without content before it."""

from __future__ import annotations

import asyncio

import pytest
from fakes import chat_chunk, chunked, event, json_answer, run, sse_answer, sse_head
from tailrace.proxy.outcome import Ending

from cases.scene import DONE, END, FINISH, ROLE, STREAM, USAGE, errors_of, framed, scene

RESPONSES = "/v1/responses"
SILENCE = 0.4
"""After so many seconds a stream that owes nothing counts as ended here."""
LONGER = 1.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    for module in ("attempt", "closing"):
        monkeypatch.setattr(f"tailrace.proxy.{module}.SILENCE", SILENCE)


def told(kind, **fields):
    """An event of the Responses API."""
    return event({"type": kind, **fields}, kind)


CREATED = told("response.created", response={"id": "resp_1", "status": "in_progress", "output": []})


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete"])
def test_SSE_13_an_empty_answer_is_an_answer(kind):
    pieces = [CREATED, told(kind, response={"id": "resp_1", "status": kind[9:], "output": []})]

    async def body():
        async with scene(sse_answer(pieces), plugins="[cases.witness:Witness, cases.policies:MoveOn]") as s:
            answer = await s.ask({"model": "m", "input": "x", "stream": True}, RESPONSES)
            assert (answer.status, answer.body, answer.complete) == (200, b"".join(pieces), True)
            assert (await s.outcome()).ending is Ending.COMPLETED
            assert len(s.upstream.requests) == 1

    run(body())


def test_SSE_13_a_resumption_may_bring_the_end_alone():
    last = told("response.completed", response={"id": "resp_1", "status": "completed", "output": []})
    created = json_answer({"id": "resp_1", "object": "response", "output": [], "status": "queued"})

    async def body():
        async with scene(created, sse_answer([last])) as s:
            assert (await s.ask({"model": "m", "input": "x", "background": True}, RESPONSES)).status == 200
            client = await s.client()
            answer = await client.get(f"{RESPONSES}/resp_1?stream=true&starting_after=42")
            assert (answer.status, answer.body, answer.complete) == (200, last, True)

    run(body())


def test_SSE_13_done_alone_is_no_answer():
    """Where the terminal event says nothing of the answer, a finish reason has to."""

    async def body():
        async with scene(sse_answer([ROLE, DONE])) as s:
            assert (await s.ask()).status == 502

    run(body())


def pausing(first, seconds, then):
    """Two parts of a stream with a pause between them; without a second part it stays open."""

    async def script(conn, request):
        await conn.send(sse_head() + framed(first))
        await asyncio.sleep(seconds)
        if then:
            await conn.send(b"".join([chunked(piece) for piece in then]) + END)
        await conn.wait_closed()

    return script


ASKED = {**STREAM, "stream_options": {"include_usage": True}}
ALL = [ROLE, chat_chunk("a"), FINISH, USAGE, DONE]
NULL = chat_chunk(finish="stop").replace(b'"choices"', b'"usage":null,"choices"')


@pytest.mark.parametrize("plugin", ["Witness", "Tapped", "Editing"])
def test_SSE_13_usage_that_is_owed_is_waited_for(plugin):
    """The pause behind the finish reason is longer than that after which a stream counts as ended."""
    several = [
        chat_chunk("a"),
        chat_chunk("b", index=1),
        FINISH,
        chat_chunk("c", index=1),
        chat_chunk(finish="stop", index=1),
    ]
    cases = [
        (ALL, 3, ASKED),
        ([ROLE, chat_chunk("a"), NULL, USAGE, DONE], 3, ASKED),
        ([*several, USAGE, DONE], 5, {**ASKED, "n": 2}),
    ]

    async def one(pieces, count, body):
        async with scene(pausing(pieces[:count], LONGER, pieces[count:]), plugins=f"[cases.witness:{plugin}]") as s:
            answer = await s.ask(body)
            assert (answer.body, answer.complete) == (b"".join(pieces), True)
            assert (await s.outcome()).ending is Ending.COMPLETED

    async def body():
        await asyncio.gather(*[one(*case) for case in cases])

    run(body())


def test_SSE_13_usage_that_the_gateway_needs_is_waited_for():
    plugins = "[cases.witness:Witness, cases.policies:NeedsUsage]"

    async def body():
        async with scene(pausing(ALL[:3], LONGER, ALL[3:]), plugins=plugins) as s:
            answer = await s.ask()
            assert (answer.body, answer.complete) == (b"".join([*ALL[:3], DONE]), True)
            usage = (await s.outcome()).usage
            assert usage is not None
            assert usage.completion == 2

    run(body())


def test_SSE_13_usage_that_never_comes():
    async def body():
        async with scene(pausing(ALL[:3], 0, []), more=f"timeouts: {{gap: {LONGER}}}") as s:
            answer = await s.ask(ASKED)
            assert answer.body.startswith(b"".join(ALL[:3]))
            assert not answer.complete
            assert len(errors_of(answer.body)) == 1
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.UPSTREAM_LOST, 504)

    run(body())


@pytest.mark.parametrize(
    "pieces", [ALL[:4], [ROLE, chat_chunk("a").replace(b'"choices"', b'"usage":{},"choices"'), FINISH]]
)
def test_SSE_13_what_is_not_owed_is_not_waited_for(pieces):
    """Usage that has come, and usage that nobody asked for."""
    asked = ASKED if pieces == ALL[:4] else STREAM

    async def body():
        async with scene(pausing(pieces, 0, [])) as s:
            answer = await s.ask(asked)
            assert (answer.body, answer.complete) == (b"".join(pieces), True)

    run(body())


def judged_by(policy):
    return f"[cases.witness:Witness, cases.policies:MoveOn, cases.policies:{policy}]"


@pytest.mark.parametrize("pieces", [ALL, ALL[:4], [ROLE, FINISH, DONE]])
@pytest.mark.parametrize("stays_open", [False, True])
def test_SSE_13_a_policy_that_waits_is_done_at_a_proper_end(pieces, stays_open):
    """What it holds back goes out, wherever it would have gone on waiting."""
    script = pausing(pieces, 0, []) if stays_open else sse_answer(pieces)

    async def body():
        async with scene(script, plugins=judged_by("Patient")) as s:
            answer = await s.ask()
            assert (answer.status, answer.body, answer.complete) == (200, b"".join(pieces), True)
            assert len(s.upstream.requests) == 1

    run(body())


def test_SSE_13_a_policy_that_waits_for_an_empty_answer():
    pieces = [CREATED, told("response.completed", response={"id": "resp_1", "status": "completed", "output": []})]

    async def body():
        async with scene(sse_answer(pieces), plugins=judged_by("Patient")) as s:
            answer = await s.ask({"model": "m", "input": "x", "stream": True}, RESPONSES)
            assert (answer.status, answer.body) == (200, b"".join(pieces))

    run(body())


@pytest.mark.parametrize(
    "pieces",
    [[ROLE, DONE], [ROLE, chat_chunk("a")], [ROLE, chat_chunk("a"), DONE], [chat_chunk("a"), FINISH]],
)
def test_SSE_13_a_policy_that_waits_is_not_done_at_a_false_end(pieces):
    """Another worker is asked: nothing has been shown. The last has one finish reason where two are due."""

    async def body():
        async with scene(sse_answer(pieces), sse_answer(ALL), plugins=judged_by("Patient")) as s:
            answer = await s.ask({**STREAM, "n": 2} if FINISH in pieces else STREAM)
            assert (answer.status, answer.body) == (200, b"".join(ALL))
            assert len(s.upstream.requests) == 2

    run(body())


def test_SSE_13_a_policy_has_the_last_word_on_a_terminal_event():
    async def body():
        async with scene(sse_answer(ALL), plugins="[cases.witness:Witness, cases.policies:Refusing]") as s:
            assert (await s.ask()).status == 502

    run(body())


BARE = event({"object": "error", "message": "too much", "type": "BadRequestError", "param": None, "code": 422})


@pytest.mark.parametrize("plugin", ["Witness", "Tapped", "Editing"])
def test_SSE_13_an_error_without_its_object_is_no_end(plugin):
    """Older engines put the fields of an error at the top level, and `[DONE]` behind it."""

    async def body():
        async with scene(
            sse_answer([ROLE, chat_chunk("a"), BARE, DONE]),
            sse_answer([ROLE, BARE, DONE]),
            plugins=f"[cases.witness:{plugin}]",
        ) as s:
            answer = await s.ask()
            assert (answer.body, answer.complete) == (b"".join([ROLE, chat_chunk("a"), BARE]), False)
            assert (await s.outcome()).status == 422
            answer = await s.ask()
            assert (answer.status, answer.json()["error"]["message"]) == (422, "too much")

    run(body())
