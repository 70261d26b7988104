"""Every way in which a call can end: told once, and nothing is held afterwards (DIS-06, DIS-08, DIS-11)."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from fakes import (
    chat_answer,
    chat_chunk,
    event,
    json_answer,
    run,
    sending,
    sse_answer,
    sse_head,
    stream_of,
)
from tailrace.proxy.outcome import Ending

from cases.scene import CHAT, END, PATH, ROLE, STREAM, framed, scene, until
from cases.scripts import CANCELLED, FAILED, WON, endless, silent, text_then_silence

# Every way in which a call can end: what the client does or sees, the ending, and how the attempts end.


async def leaves(s):
    client = await s.begin()
    await client.read_until(b'"x"')
    await client.close()


async def leaves_early(s):
    client = await s.begin()
    await s.upstream.asked()
    await client.close()


async def leaves_uploading(s):
    client = await s.client()
    await client.request("POST", PATH, b'{"model": "m"', {"content-length": "1000"})
    await until(lambda: s.process.service.active == 1, "the call")
    client.rst()


def asks(status, **changes):
    async def act(s):
        answer = await s.ask({**STREAM, **changes})
        assert answer.status == status

    return act


async def uploads_too_much(s):
    client = await s.client()
    await client.request("POST", PATH, headers={"content-length": "99999999"})
    assert (await client.read_answer()).status == 413


async def uploads_too_much_in_chunks(s):
    client = await s.client()
    await client.send(b"POST %b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" % PATH.encode())
    await until(lambda: s.process.service.active == 1, "the call")
    await client.send(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
    assert (await client.read_until_close()).count(b"HTTP/1.1 ") == 1


async def role_then_error(conn, request):
    await conn.send(sse_head() + framed([ROLE, event({"error": {"message": "x", "code": 500}})]) + END)


async def text_then_reset(conn, request):
    await conn.send(sse_head() + framed([ROLE, chat_chunk("x")]))
    await asyncio.sleep(0.02)
    conn.rst()


async def resets(conn, request):
    conn.rst()


ENDINGS = {
    "completed": (sse_answer(stream_of(["x"])), asks(200), Ending.COMPLETED, [WON]),
    "unary": (json_answer(chat_answer("x")), asks(200, stream=False), Ending.COMPLETED, [WON]),
    "left mid-stream": (endless, leaves, Ending.CLIENT_GONE, [CANCELLED]),
    "left before an answer": (silent, leaves_early, Ending.CLIENT_GONE, [CANCELLED]),
    "left uploading": (silent, leaves_uploading, Ending.CLIENT_GONE, []),
    "unknown model": (silent, asks(404, model="nobody"), Ending.REFUSED, []),
    "no model": (silent, asks(400, model=7), Ending.REFUSED, []),
    "too large": (silent, uploads_too_much_in_chunks, Ending.REFUSED, []),
    "error status": (json_answer({"error": {"message": "x"}}, 504), asks(504), Ending.FAILED, [FAILED]),
    "client's error": (json_answer({"error": {"message": "x"}}, 400), asks(400), Ending.REFUSED, [FAILED]),
    "error event": (role_then_error, asks(500), Ending.FAILED, [FAILED]),
    "reset early": (resets, asks(502), Ending.FAILED, [FAILED]),
    "reset mid-stream": (text_then_reset, asks(200), Ending.UPSTREAM_LOST, [FAILED]),
    "first content": (silent, asks(504), Ending.DEADLINE, [FAILED]),
    "gap": (text_then_silence, asks(200), Ending.UPSTREAM_LOST, [FAILED]),
    "garbage": (b"SMTP ready\r\n\r\n", asks(502), Ending.FAILED, [FAILED]),
}
TIGHT = """
timeouts: {first_content_base: 0.2, gap: 0.2}
limits: {body: 4096}
heartbeat: 0
"""


@pytest.mark.parametrize("name", ENDINGS)
def test_DIS_11_every_ending_is_told_once(name):
    """`on_complete` once, `on_attempt_end` once an attempt, nothing held; and the next call is served."""
    script, act, ending, ends = ENDINGS[name]

    async def body():
        async with scene(script, more=TIGHT, plugins="[cases.witness:Tapped]") as s:
            for count in (1, 2):
                await act(s)
                assert (await s.outcome(count)).ending is ending
                await s.at_rest()
                assert s.witness.ends == ends * count
                assert [call.outcome for call in s.witness.calls] == s.witness.outcomes
            for watch in s.witness.watches:
                assert [outcome.ending for outcome in watch.outcomes] == [ending]
            s.upstream.scripts = [sending(json_answer(chat_answer("well")))]
            assert (await s.ask(CHAT)).status == 200

    run(body())


def test_DIS_06_and_08_no_slot_is_lost():
    """Many calls at once, each ending in a way of its own, leave every counter at 0."""
    names = [name for name, (_, _, _, ends) in ENDINGS.items() if ends and name not in ("first content", "gap")]
    names.remove("left before an answer")

    async def script(conn, request):
        answer = ENDINGS[request.header("x-ending")][0]
        await (answer if callable(answer) else sending(answer))(conn, request)

    async def one(s, name):
        client = await s.client()
        await client.request("POST", PATH, orjson.dumps(STREAM), {"x-ending": name})
        if name.startswith("left"):
            await client.read_until(b'"x"')
            client.rst()
        else:
            await client.read_head()
            await client.close()

    async def body():
        async with scene(script, more=TIGHT) as s:
            for _ in range(5):
                await asyncio.gather(*[one(s, name) for name in names * 3])
            await s.at_rest()
            assert all(worker.inflight == 0 for worker in s.process.roster.workers)

    run(body())
