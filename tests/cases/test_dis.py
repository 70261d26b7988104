"""Client disconnect and cancellation."""

from __future__ import annotations

import asyncio

import pytest
from fakes import chat_chunk, chunked, run, sse_head
from tailrace.proxy.outcome import AttemptEnd, Ending

from cases.scene import PATH, ROLE, closed_promptly, scene, until


async def endless(conn, request):
    await conn.send(sse_head() + chunked(ROLE))
    while True:
        await conn.send(chunked(chat_chunk("x")))
        await asyncio.sleep(0.01)


async def silent(conn, request):
    await conn.wait_closed()


async def head_only(conn, request):
    await conn.send(sse_head())
    await conn.wait_closed()


async def role_only(conn, request):
    await conn.send(sse_head() + chunked(ROLE))
    await conn.wait_closed()


async def gone(client, how):
    if how == "fin":
        await client.close()
    elif how == "rst":
        client.rst()
    else:
        client.fin()


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
def test_DIS_01_stop_button_mid_stream(how):
    async def body():
        async with scene(endless) as s:
            client = await s.begin()
            await client.read_until(b'"x"')
            await gone(client, how)
            await closed_promptly(s.upstream)
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.CLIENT_GONE, 499)
            assert s.witness.ends == [AttemptEnd.CANCELLED]

    run(body())


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("script", [silent, head_only, role_only])
def test_DIS_02_gone_before_the_first_token(script, how):
    async def body():
        async with scene(script) as s:
            client = await s.begin()
            await s.upstream.asked()
            await asyncio.sleep(0.02)
            await gone(client, how)
            await closed_promptly(s.upstream)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            assert s.witness.ends == [AttemptEnd.CANCELLED]
            assert s.witness.heads == []

    run(body())


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
def test_DIS_02_gone_during_the_upload(how):
    async def body():
        async with scene(silent) as s:
            client = await s.client()
            await client.request("POST", PATH, b'{"model": "m"', {"content-length": "1000"})
            await until(lambda: s.process.service.active == 1, "the call")
            await gone(client, how)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            await s.at_rest()
            assert not s.process.service.connections
            assert s.upstream.requests == []

    run(body())


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_DIS_02_gone_while_a_connection_is_opened(how):
    async def body():
        async with scene(silent) as s:
            opened = asyncio.Event()
            address = s.process.pools["model:m"].workers[0].address

            class Slow(type(address)):
                async def open(self, *_):
                    opened.set()
                    await asyncio.Event().wait()

            s.process.pools["model:m"].workers[0].connections.address = Slow.parse(s.upstream.url)
            client = await s.begin()
            await opened.wait()
            await gone(client, how)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            assert s.upstream.requests == []

    run(body())
