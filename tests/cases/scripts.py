"""What workers do in the cases: scripts that several of them share."""

from __future__ import annotations

import asyncio

from fakes import chat_answer, chat_chunk, chunked, event, json_answer, sse_head, stream_of
from tailrace.proxy.outcome import AttemptEnd

from cases.scene import DONE, END, FINISH, ROLE, framed

PLUGINS = ["Witness", "Tapped", "Editing"]
FAILED, CANCELLED, WON = AttemptEnd.FAILED, AttemptEnd.CANCELLED, AttemptEnd.WON
WELL = json_answer(chat_answer("well"))
GOOD = stream_of(["a", "b"])
TEXT = [ROLE, chat_chunk("one"), chat_chunk("two"), chat_chunk("three")]
ERROR = event({"error": {"message": "boom", "type": "InternalServerError", "param": None, "code": 503}})


async def silent(conn, request):
    await conn.wait_closed()


async def head_only(conn, request):
    await conn.send(sse_head())
    await conn.wait_closed()


async def role_only(conn, request):
    await conn.send(sse_head() + chunked(ROLE))
    await conn.wait_closed()


async def then_silent(conn, request):
    await conn.send(sse_head() + framed([ROLE, chat_chunk("a")]))
    await conn.wait_closed()


async def endless(conn, request):
    await conn.send(sse_head() + chunked(ROLE))
    while True:
        await conn.send(chunked(chat_chunk("x")))
        await asyncio.sleep(0.01)


async def slowly(conn, request):
    await conn.send(sse_head() + chunked(ROLE))
    for text in ("one", "two"):
        await conn.send(chunked(chat_chunk(text)))
        await asyncio.sleep(0.02)
    await conn.send(framed([FINISH, DONE]) + END)


def ticking(count, pause):
    async def script(conn, request):
        await conn.send(sse_head() + chunked(ROLE))
        for number in range(count):
            await conn.send(chunked(chat_chunk(str(number))))
            await asyncio.sleep(pause)
        await conn.send(framed([FINISH, DONE]) + END)

    return script


def each(pieces, pause=0.001, end=END):
    """Each piece as a chunk of its own, in a segment of its own."""

    async def script(conn, request):
        await conn.send(sse_head())
        for piece in pieces:
            await conn.send(chunked(piece))
            await asyncio.sleep(pause)
        await conn.send(end)

    return script


def dying(pieces, how):
    async def script(conn, request):
        await conn.send(sse_head() + framed(pieces))
        await asyncio.sleep(0.02)
        if how == "rst":
            conn.rst()
        elif how == "fin":
            conn.close()
        elif how == "clean":
            await conn.send(END)
        elif how == "malformed":
            await conn.send(b"zz\r\nwhat\r\n")
        elif how == "overlong":
            await conn.send(b"3\r\nabcdef\r\n")

    return script


async def text_then_silence(conn, request):
    await conn.send(sse_head() + framed([ROLE, chat_chunk("x")]))
    await conn.wait_closed()
