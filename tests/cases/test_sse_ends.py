"""SSE: what a proper end of a stream is, with and without content before it."""

from __future__ import annotations

import pytest
from fakes import event, json_answer, run, sse_answer
from tailrace.proxy.outcome import Ending

from cases.scene import DONE, ROLE, scene

RESPONSES = "/v1/responses"


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
