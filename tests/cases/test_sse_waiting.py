"""SSE: comments, heartbeats and the ends of streams."""

from __future__ import annotations

import asyncio

import pytest
from fakes import chat_answer, chat_chunk, chunked, event, json_answer, run, sse_answer, sse_head, stream_of
from tailrace.proxy.outcome import Ending

from cases.scene import DONE, END, FINISH, PATH, ROLE, STREAM, USAGE, errors_of, framed, scene, until
from cases.scripts import PLUGINS, each, silent


def test_SSE_06_comments_are_no_content():
    """Comments go on as comments, and nothing takes one for the first token."""
    comment = b": PROCESSING\n\n"
    looked = asyncio.Event()
    pieces = [comment] * 5 + [ROLE, comment, chat_chunk("a"), comment, FINISH, DONE]

    async def script(conn, request):
        await conn.send(sse_head() + framed(pieces[:7]))
        await looked.wait()
        await conn.send(framed(pieces[7:]) + END)

    async def body():
        async with scene(script) as s:
            client = await s.begin()
            await s.upstream.asked()
            await asyncio.sleep(0.03)
            assert s.witness.heads == [], "a comment committed the answer"
            looked.set()
            answer = await client.read_answer()
            assert answer.body == b"".join(pieces)

    run(body())


@pytest.mark.parametrize("plugin", PLUGINS)
def test_SSE_08_no_heartbeat_inside_an_event(plugin):
    whole = chat_chunk("abcdef")

    async def script(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("x"), whole[:30]]))
        await asyncio.sleep(0.6)
        await conn.send(chunked(whole[30:]))
        await asyncio.sleep(0.6)
        await conn.send(framed([FINISH, DONE]) + END)

    async def body():
        async with scene(script, more="heartbeat: 0.2", plugins=f"[cases.witness:{plugin}]") as s:
            answer = await s.ask()
            beats = answer.body.count(b": heartbeat\n\n")
            assert beats
            # What an edit has not got whole, the client has not begun to hear.
            early = answer.body.partition(whole)[0].count(b": heartbeat\n\n") if plugin == "Editing" else 0
            order = [b": heartbeat\n\n" * early, whole, b": heartbeat\n\n" * (beats - early)]
            assert answer.body == b"".join([ROLE, chat_chunk("x"), *order, FINISH, DONE])

    run(body())


@pytest.mark.parametrize("path", [PATH, "/v1/messages"])
def test_SSE_08_heartbeats_before_the_first_content(path):
    """One each interval while nothing came, then the answer with no second head; and none where it came in time."""
    messages = path == "/v1/messages"
    beat = b'event: ping\ndata: {"type": "ping"}\n\n' if messages else b": heartbeat\n\n"
    good = (
        [
            event({"type": "content_block_delta", "delta": {"text": "a"}}),
            event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
            event({"type": "message_stop"}),
        ]
        if messages
        else stream_of(["a"])
    )

    async def slow(conn, request):
        await conn.send(sse_head())
        await asyncio.sleep(0.9)
        await conn.send(framed(good) + END)

    async def body():
        async with scene(slow, sse_answer(good), more="heartbeat: 0.3") as s:
            slow_answer = await s.ask(path=path)
            beats = slow_answer.body.count(beat)
            assert 1 <= beats <= 3
            assert slow_answer.body == beat * beats + b"".join(good)
            assert slow_answer.header("content-type").startswith("text/event-stream")
            assert len(s.witness.heads) == 1
            assert (await s.ask(path=path)).body == b"".join(good)

    run(body())


def test_SSE_08_failure_after_a_heartbeat_is_an_event():
    async def failing(conn, request):
        await asyncio.sleep(0.6)
        await conn.send(json_answer({"error": {"message": "busy"}}, 503))

    async def no_stream(conn, request):
        await asyncio.sleep(0.6)
        await conn.send(json_answer(chat_answer("a")))

    async def body():
        async with scene(failing, no_stream, more="heartbeat: 0.2") as s:
            for count, status in ((1, 503), (2, 502)):
                answer = await s.ask()
                assert (answer.status, answer.complete) == (200, False)
                assert answer.body.startswith(b": heartbeat\n\n")
                assert len(errors_of(answer.body)) == 1
                assert (await s.outcome(count)).status == status
                assert len(s.witness.heads) == count

    run(body())


@pytest.mark.parametrize("stays_open", [False, True])
def test_SSE_13_no_done(stays_open, monkeypatch):
    monkeypatch.setattr("tailrace.proxy.closing.SILENCE", 0.2)
    pieces = [ROLE, chat_chunk("a"), FINISH, USAGE]

    async def open_end(conn, request):
        await conn.send(sse_head() + framed(pieces))
        await conn.wait_closed()

    async def body():
        async with scene(open_end if stays_open else each(pieces)) as s:
            answer = await s.ask()
            assert (answer.body, answer.complete) == (b"".join(pieces), True)
            assert (await s.outcome()).ending is Ending.COMPLETED

    run(body())


def test_SSE_13_one_of_two_choices_finished_is_no_end(monkeypatch):
    """With n=2, silence behind the first finish reason is not the end of the answer."""
    pieces = [chat_chunk("a"), chat_chunk("b", index=1), chat_chunk(finish="stop")]

    async def slow(conn, request):
        await conn.send(sse_head() + framed(pieces))
        await asyncio.sleep(1.0)
        await conn.send(framed([chat_chunk("c", index=1), chat_chunk(finish="stop", index=1), DONE]) + END)

    async def body():
        async with scene(slow, each(pieces), more="heartbeat: 0") as s:
            first, second = await asyncio.gather(s.ask({**STREAM, "n": 2}), late(s))
            assert first.complete
            assert first.body.endswith(DONE)
            assert not second.complete

    async def late(s):
        await s.upstream.asked()
        return await s.ask({**STREAM, "n": 2})

    monkeypatch.setattr("tailrace.proxy.closing.SILENCE", 0.4)
    run(body())


@pytest.mark.parametrize("talks_on", [False, True])
def test_SSE_13_socket_stays_open_behind_done(talks_on):
    async def open_end(conn, request):
        await conn.send(sse_head() + framed(stream_of(["a"])))
        while talks_on and conn.closed_at is None:
            await conn.send(chunked(b": still here\n\n"))
            await asyncio.sleep(0.05)
        await conn.wait_closed()

    async def body():
        async with scene(open_end) as s:
            answer = await s.ask()
            assert (answer.body, answer.complete) == (b"".join(stream_of(["a"])), True)
            assert (await s.outcome()).ending is Ending.COMPLETED
            await until(lambda: s.upstream.closed_at, "the worker's connection stayed open")

    run(body())


@pytest.mark.parametrize("prompt", [["a", "b"], [[1, 2], [3]], [1, 2]])
def test_SSE_13_several_prompts_are_several_choices(prompt):
    def text(index, finish=None):
        return event({"choices": [{"index": index, "text": "x", "finish_reason": finish}]})

    body_of = {"model": "m", "prompt": prompt, "stream": True}
    alone = prompt == [1, 2]

    async def body():
        async with scene(each([text(0), text(0, "stop")]), each([text(0), text(1, "stop"), text(0, "stop")])) as s:
            assert (await s.ask(body_of, "/v1/completions")).complete == alone
            assert (await s.ask(body_of, "/v1/completions")).complete

    run(body())


@pytest.mark.parametrize("kind", ["events late", "json late", "events pieces", "json pieces"])
def test_SSE_08_heartbeats_and_replies(kind):
    """A plugin's answer brings no second head behind a heartbeat, and no heartbeat cuts into its pieces."""
    beat, whole = b": heartbeat\n\n", b"".join(stream_of(["late"]))

    async def body():
        async with scene(
            silent,
            more="heartbeat: 0.2",
            plugins=f"[cases.witness:Witness, {{cases.policies:Replies: {{kind: {kind}}}}}]",
        ) as s:
            answer = await s.ask()
            beats = answer.body.count(beat)
            assert b"HTTP/1.1" not in answer.body
            assert len(s.witness.heads) == 1
            if kind == "json late":
                assert (answer.complete, len(errors_of(answer.body))) == (False, 1)
            elif kind == "json pieces":
                assert (answer.body, answer.complete) == (b'{"choices": []}', True)
            else:
                order = beat * beats + whole if kind == "events late" else whole + beat * beats
                assert (answer.body, answer.complete) == (order, True)
                assert beats

    run(body())
