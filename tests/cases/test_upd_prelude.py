"""What comes before the first content: held back, so that a failure is still a status (UPD-06, UPD-08)."""

from __future__ import annotations

import asyncio

import pytest
from fakes import chat_chunk, chunked, json_answer, run, sse_answer, sse_head
from tailrace.proxy.outcome import AttemptEnd, Ending

from cases.scene import (
    DONE,
    END,
    ROLE,
    closed_promptly,
    framed,
    scene,
)
from cases.scripts import ERROR, GOOD


@pytest.mark.parametrize("together", [True, False])
def test_UPD_06_prelude_then_failure(together):
    """Nothing is committed before content, so the failure is still a status."""

    async def prelude(conn, request):
        await conn.send(sse_head() + chunked(ROLE) + (chunked(ERROR) if together else b""))
        await asyncio.sleep(0.02)
        if not together:
            await conn.send(chunked(ERROR) + chunked(DONE) + END)
        await conn.wait_closed()

    async def body():
        async with scene(prelude) as s:
            answer = await s.ask()
            assert answer.status == 503
            assert answer.json()["error"]["message"] == "boom"
            assert s.witness.heads == [(s.witness.calls[0].id, 503)]
            await closed_promptly(s.upstream)

    run(body())


@pytest.mark.parametrize("first", ["prelude", "silence", "rst", "http"])
def test_UPD_06_prelude_then_failure_moves_on(first):
    """With a policy that moves on, the second worker's stream is served whole, with one prelude."""

    async def failing(conn, request):
        if first == "prelude":
            await conn.send(sse_head() + framed([ROLE, ERROR, DONE]) + END)
        elif first == "silence":
            await conn.send(sse_head() + framed([b": wait\n\n", ROLE]) + END)
        elif first == "rst":
            await conn.send(sse_head() + framed([ROLE]))
            await asyncio.sleep(0.02)
            conn.rst()
        else:
            await conn.send(json_answer({"error": {"message": "busy"}}, 503))

    async def body():
        async with scene(failing, sse_answer(GOOD), plugins="[cases.policies:MoveOn, cases.witness:Witness]") as s:
            answer = await s.ask()
            assert answer.complete
            assert answer.body == b"".join(GOOD)
            assert s.witness.ends == [AttemptEnd.FAILED, AttemptEnd.WON]
            assert (await s.outcome()).ending is Ending.COMPLETED
            assert [attempt.why for attempt in s.witness.attempts] == ["first", "retry"]

    run(body())


def test_UPD_06_hold_back_is_bounded():
    """Comments and preludes for ever are not held back for ever: past the bound they are shown."""
    many = [b": " + b"x" * 1000 + b"\n\n"] * 80
    shown = asyncio.Event()

    async def long_prelude(conn, request):
        await conn.send(sse_head() + framed([ROLE, *many]))
        await shown.wait()
        await conn.send(framed(GOOD[1:]) + END)

    async def body():
        async with scene(long_prelude) as s:
            client = await s.begin()
            await client.read_until(b"xxx")
            shown.set()
            body = b""
            while b"[DONE]" not in body:
                body += await client.read_some()
            assert (await s.outcome()).ending is Ending.COMPLETED

    run(body())


@pytest.mark.parametrize("as_one_chunk", [True, False])
def test_UPD_08_content_and_error_in_one_read(as_one_chunk):
    pieces = [ROLE, chat_chunk("hi"), ERROR, DONE]
    sent = [b"".join(pieces)] if as_one_chunk else pieces

    async def body():
        async with scene(sse_head() + framed(sent) + END, sse_head() + framed([ROLE + ERROR + DONE]) + END) as s:
            answer = await s.ask()
            assert answer.status == 200
            assert not answer.complete
            assert answer.body == b"".join(pieces[:3])
            answer = await s.ask()
            assert answer.status == 503

    run(body())
