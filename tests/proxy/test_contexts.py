"""Context variables: each request has its own, in every phase, however its connections are shared."""

from __future__ import annotations

import asyncio
import gc

import orjson
import pytest
from contexts import Keeping, listed, phases, watching
from fakes import (
    CHAT,
    GOOD,
    PATH,
    RawClient,
    Upstream,
    answer,
    chat_chunk,
    chunked,
    gateway,
    run,
    sse_answer,
    sse_head,
    stream_of,
    yaml_for,
)

STREAM = {**CHAT, "stream": True}


@pytest.mark.parametrize("body", [CHAT, STREAM])
@pytest.mark.parametrize("tap", ["edit", "watch"])
@pytest.mark.parametrize("plugin", ["Tapping", "TapsOnly"])
def test_calls_that_share_a_worker_connection(body, tap, plugin):
    async def script(conn, request):
        await conn.send(GOOD if not request.json().get("stream") else sse_answer(stream_of(["a", "b"])))

    async def main():
        with watching() as seen:
            async with (
                Upstream(script) as upstream,
                gateway(yaml_for(upstream, plugins=listed(plugin, tap=tap))) as g,
            ):
                for _ in range(4):
                    async with RawClient(g.doors[0].shown) as client:
                        assert (await client.post(PATH, body)).complete
                assert len(upstream.connections) < 4
            assert len(seen) == 4
            for call_id, notes in seen.items():
                assert {"stream", "tap finish", "answer", "attempt end"} <= phases(notes)
                # What a tap sets is there at the end: it is the same context, not a copy.
                if body is STREAM or tap == "watch":
                    assert ("fed", call_id) in notes

    run(main())


def test_calls_that_wait_behind_each_other():
    async def main():
        with watching() as seen:
            async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=listed("All"))) as g:
                async with RawClient(g.doors[0].shown) as client:
                    for _ in range(3):
                        await client.request("POST", PATH, orjson.dumps(CHAT))
                    for _ in range(3):
                        assert (await client.read_answer()).status == 200
            assert len(seen) == 3

    run(main())


FAILING = {
    "status": answer(503, b'{"error": {"message": "busy"}}'),
    "lost": lambda conn, request: lose(conn),
    "quiet": lambda conn, request: conn.wait_closed(),
}


async def lose(conn):
    conn.rst()


@pytest.mark.parametrize("plugin", ["Steering", "Tapping"])
@pytest.mark.parametrize("how", [*FAILING, "refused", "hedge"])
def test_another_attempt(how, plugin):
    """Steered from a read, a lost or refused connection, a timer and a look at what is quiet."""

    async def main():
        with watching() as seen:
            plugins = listed(plugin, retries=True, patience=0.05 if how == "hedge" else 9)
            more = "timeouts: {first_content_base: 300ms}\n" if how == "quiet" else ""
            turns = iter([FAILING.get(how, FAILING["quiet"]), sse_answer(stream_of(["a"]))])

            async def in_turn(conn, request):
                turn = next(turns)
                await (turn(conn, request) if callable(turn) else conn.send(turn))

            # A hedge goes to another worker.
            async with Upstream(in_turn) as upstream, Upstream(in_turn) as other:
                workers = ["http://127.0.0.1:9"] if how == "refused" else [upstream, other]
                async with gateway(yaml_for(*workers, plugins=plugins, more=more)) as g:
                    async with RawClient(g.doors[0].shown) as client:
                        got = await client.post(PATH, STREAM)
                        assert got.status == (503 if how == "refused" else 200)
            ((call_id, notes),) = seen.items()
            assert {"allow", "attempt end", "patience"} <= phases(notes)
            assert ("hedge" if how == "hedge" else "retry", call_id) in notes or plugin == "Tapping"
            assert ("target" in phases(notes)) == (how != "hedge")

    run(main())


def test_a_client_that_leaves_and_a_stream_that_breaks():
    """Taps see the end from the client's side, from the worker's, from the clock, and from the process's end."""
    how = iter(["client", "worker", "clock", "drain"])

    async def script(conn, request):
        await conn.send(sse_head() + chunked(chat_chunk("", role="assistant")) + chunked(chat_chunk("a")))
        if next(how) == "worker":
            await asyncio.sleep(0.05)
            conn.rst()
        await conn.wait_closed()

    async def main():
        with watching() as seen:
            plugins = listed("Tapping", tap="watch")
            async with Upstream(script) as upstream:
                async with gateway(
                    yaml_for(upstream, plugins=plugins, more="timeouts: {gap: 300ms}\npre_stop: 0\n")
                ) as g:
                    for _ in range(4):
                        async with RawClient(g.doors[0].shown) as client:
                            await client.request("POST", PATH, orjson.dumps(STREAM))
                            await client.read_until(b'"a"')
                            if len(seen) == 4:
                                hurry = asyncio.Event()
                                hurry.set()
                                await g.drain(hurry)
                            if len(seen) > 1:
                                await client.read_until_close()
                        while g.service.active:
                            await asyncio.sleep(0.005)
            assert [phases(notes) >= {"feed", "tap finish", "attempt end"} for notes in seen.values()] == [True] * 4

    run(main())


@pytest.mark.parametrize("how", ["heartbeat", "total", "shutdown"])
def test_what_the_clock_and_the_end_of_the_process_bring_about(how):
    async def script(conn, request):
        await asyncio.sleep(0.5)
        await conn.send(sse_answer(stream_of(["a"])))
        await conn.wait_closed()

    async def main():
        with watching() as seen:
            more = {
                "heartbeat": "heartbeat: 200ms\n",
                "total": "timeouts: {total: 200ms}\n",
                "shutdown": "pre_stop: 0\ndrain: 0.1s\n",
            }
            async with Upstream(script) as upstream:
                async with gateway(yaml_for(upstream, plugins=listed("Steering"), more=more[how])) as g:
                    async with RawClient(g.doors[0].shown) as client:
                        await client.request("POST", PATH, orjson.dumps(STREAM))
                        await upstream.asked()
                        if how == "shutdown":
                            await g.drain(asyncio.Event())
                        got = await client.read_answer()
                        assert got.status == {"heartbeat": 200, "total": 504, "shutdown": 503}[how]
            (notes,) = seen.values()
            assert {"answer", "attempt end"} <= phases(notes)

    run(main())


def test_a_plain_stream_is_relayed_without_entering_a_context():
    """Nobody looks at its bytes, so the context costs nothing a token."""
    go = asyncio.Event()

    async def script(conn, request):
        events = stream_of(["a"])
        await conn.send(sse_head() + chunked(events[0]) + chunked(events[1]))
        await go.wait()
        await conn.send(b"".join(chunked(event) for event in [*events[2:], b""]))

    async def main():
        for plugin, entered in (("Judging", False), ("Tapping", True)):
            go.clear()
            with watching():
                async with Upstream(script) as upstream, gateway(yaml_for(upstream, plugins=listed(plugin))) as g:
                    async with RawClient(g.doors[0].shown) as client:
                        await client.request("POST", PATH, orjson.dumps(STREAM))
                        await client.read_until(b'"a"')
                        (connection,) = {client.call.tries[0].connection for client in g.service.connections}
                        assert (connection.stride is not None) == entered
                        go.set()
                        await client.read_until(b"[DONE]")
                        while g.service.active:
                            await asyncio.sleep(0.005)
                        assert connection.stride is None

    run(main())


def test_a_context_ends_with_its_call():
    """A worker connection that the call opened, and that rests for others, does not keep it."""

    async def main():
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins="[contexts:Keeping]")) as g:
            async with RawClient(g.doors[0].shown) as client:
                assert (await client.post(PATH, CHAT)).status == 200
                (worker,) = g.workers()
                assert worker.connections.resting
                gc.collect()
                assert Keeping.latest() is None

    run(main())
