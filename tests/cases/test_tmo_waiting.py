"""Timeouts: gaps, totals, slow and stalled readers."""

from __future__ import annotations

import asyncio

import pytest
from fakes import (
    chat_answer,
    chat_chunk,
    chunked,
    json_answer,
    run,
    sse_answer,
    sse_head,
)
from tailrace.proxy.outcome import Ending

from cases.scene import DONE, FINISH, PATH, ROLE, errors_of, framed, scene, until
from cases.scripts import silent, then_silent, ticking


def test_TMO_09_gap():
    """A stream that falls silent ends by UPD-02."""

    async def body():
        async with scene(then_silent, more="timeouts: {gap: 0.3}\nheartbeat: 0") as s:
            answer = await s.ask()
            assert not answer.complete
            assert answer.body.startswith(ROLE + chat_chunk("a"))
            assert [error["code"] for error in errors_of(answer.body)] == ["upstream_timeout"]
            assert (await s.outcome()).status == 504
            await until(lambda: s.upstream.closed_at, "the worker's connection stayed open")

    run(body())


@pytest.mark.parametrize("script", ["drip", "silence", "stream"])
def test_TMO_09_total_limit(script):
    async def drip(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("a")]))
        for byte in chat_chunk("b" * 500):
            await conn.send(chunked(bytes([byte])))
            await asyncio.sleep(0.02)

    scripts = {"drip": drip, "silence": silent, "stream": ticking(1000, 0.02)}

    async def body():
        async with scene(scripts[script], more="timeouts: {total: 0.5, gap: 0.3, first_content_base: 5}") as s:
            answer = await s.ask()
            if script == "silence":
                assert answer.status == 504
            else:
                assert not answer.complete
                assert b"[DONE]" not in answer.body
                assert bool(errors_of(answer.body.rpartition(b"\n\n")[0] + b"\n\n")) == (script == "stream")
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.DEADLINE, 504)
            await until(lambda: s.upstream.closed_at, "the worker's connection stayed open")

    run(body())


def test_TMO_09_stalled_reader_is_cut():
    """A client that takes nothing for `client_write` is cut, and the worker's silence is not counted meanwhile."""

    async def flooding(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("a")]))
        while True:
            await conn.send(chunked(b": " + b"x" * 16384 + b"\n\n"))

    async def body():
        async with scene(flooding, more="timeouts: {client_write: 0.8, gap: 0.3}\nheartbeat: 0") as s:
            client = await s.begin()
            await client.read_until(b'"a"')
            connection = next(iter(s.process.service.connections))
            await until(lambda: connection.paused, "backpressure")
            await until(lambda: not s.upstream.connections[0]._writable.is_set(), "backpressure at the worker")
            await asyncio.sleep(0.4)
            assert not s.witness.outcomes, "the gap limit hit a worker that was held back"
            silent_since = connection.call.race.winner.connection.touched
            assert s.process.service.clock.now - silent_since < 0.3, "its silence counted"
            assert connection.transport.get_write_buffer_size() < 1 << 20
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            await until(lambda: s.upstream.closed_at, "the worker's connection stayed open")

    run(body())


def test_TMO_09_slow_reader_gets_everything():
    """Backpressure both ways loses nothing, and silence after a pause is counted anew."""
    pieces = [ROLE, *[chat_chunk("x" * 20_000)] * 300, FINISH, DONE]

    async def body():
        async with scene(sse_answer(pieces), more="timeouts: {gap: 0.4}") as s:
            client = await s.begin()
            await client.read_head()
            await asyncio.sleep(1.0)
            size = 0
            while (chunk := await client.read_chunk()) is not None and chunk[0]:
                size += len(chunk[0])
            assert chunk is not None
            assert size == sum(map(len, pieces))

    run(body())


def test_TMO_09_answer_is_cut_for_a_client_that_never_reads_it():
    """Also when the call itself is over and only its bytes wait."""

    async def body():
        async with scene(json_answer(chat_answer("x" * 1_000_000)), more="timeouts: {client_write: 0.3}") as s:
            client = await s.client()
            for _ in range(12):
                await client.request("POST", PATH, b'{"model":"m"}')
            await until(lambda: bool(s.witness.outcomes), "the first answer")
            await until(lambda: not s.process.service.connections, "the stalled client stayed")
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                for _ in range(12):
                    answer = await client.read_answer()
                    if not answer.complete:
                        raise ConnectionResetError

    run(body())


HANGS = "{{cases.policies:InPieces: {{kind: {kind}, then: hangs}}}}"


@pytest.mark.parametrize("plugin", ["{cases.policies:Replies: {kind: json late}}", "cases.policies:Stubborn"])
def test_TMO_09_total_limit_while_a_plugin_waits(plugin):
    """Also for one that goes on when it is cancelled: the worker that is asked then is given up at once."""

    async def body():
        plugins = f"[cases.witness:Witness, {plugin}]"
        async with scene(silent, more="timeouts: {total: 0.2}\nheartbeat: 0", plugins=plugins) as s:
            answer = await s.ask()
            assert (answer.status, answer.complete) == (504, True)
            assert "total limit of 0.2 s" in answer.json()["error"]["message"]
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.DEADLINE, 504)

    run(body())


@pytest.mark.parametrize("kind", ["events", "json"])
def test_TMO_09_total_limit_of_a_reply_in_pieces(kind):
    async def body():
        plugins = f"[cases.witness:Tapped, {HANGS.format(kind=kind)}]"
        async with scene(silent, more="timeouts: {total: 0.2}", plugins=plugins) as s:
            answer = await s.ask()
            assert (answer.status, answer.complete) == (200, False)
            assert (b"total limit" in answer.body) == (kind == "events")
            assert (await s.outcome()).ending is Ending.DEADLINE

    run(body())
