"""Resources: what clients cost that read slowly."""

from __future__ import annotations

import asyncio
import gc
import socket

import orjson
import pytest
from fakes import answer, chat_chunk, chunked, run, sse_head
from tailrace.proxy.server import ClientConnection
from tailrace.proxy.upstream import UpstreamConnection

from cases.scene import CHAT, PATH, ROLE, STREAM, scene, until

PIECE = chunked(chat_chunk("x" * 16_000))


async def flood(conn, request):
    """As many tokens as the gateway takes, without end."""
    await conn.send(sse_head() + chunked(ROLE))
    conn.sent = 0
    while True:
        await conn.send(PIECE)
        conn.sent += len(PIECE)


async def settled(counts) -> None:
    """Wait until numbers no longer change."""
    before = None
    while (now := counts()) != before:
        before = now
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("plugins", ["[cases.witness:Witness]", "[cases.witness:Tapped]"], ids=["plain", "tapped"])
def test_RES_01_slow_readers_take_no_memory_and_are_cut(plugins):
    async def body():
        async with scene(flood, plugins=plugins, more="timeouts: {client_write: 1s}") as s:
            for _ in range(10):
                await s.begin(STREAM)
            await s.upstream.asked(10)
            held = []

            def waiting():
                held.append(
                    [connection.transport.get_write_buffer_size() for connection in s.process.service.connections]
                )
                return [getattr(connection, "sent", 0) for connection in s.upstream.connections]

            await settled(waiting)
            assert max(map(max, filter(None, held))) < 1 << 20
            # The worker was stopped too: what it sent lies in the kernel's buffers.
            assert max(waiting()) < 20 << 20
            await until(lambda: not s.process.service.connections, "the stalled clients stayed")
            await s.at_rest()

    run(body())


def test_RES_01_a_slow_reader_that_reads_is_not_cut():
    async def body():
        whole = answer(200, b'{"choices":[],"x":"%b"}' % (b"x" * 900_000))
        async with scene(whole, more="timeouts: {client_write: 0.3s}") as s:
            client = await s.client()
            await until(lambda: bool(s.process.service.connections), "the connection")
            (connection,) = s.process.service.connections
            # Small buffers in the kernel, so that the gateway itself has to wait.
            connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
            client._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            await client.request("POST", PATH, orjson.dumps(CHAT))
            total = 0
            while total < len(whole):
                data = await client.read_some()
                assert data, f"cut after {total} of {len(whole)} bytes"
                total += len(data)
                await asyncio.sleep(0.06)

    run(body())


def test_RES_07_nothing_of_a_slow_client_is_left():
    async def body():
        async with scene(flood) as s:
            clients = [await s.begin(STREAM) for _ in range(10)]
            await until(
                lambda: sum(connection.paused for connection in s.process.service.connections) == 10,
                "ten clients with full buffers",
            )
            for client in clients:
                client.rst()
            await s.at_rest()
            await until(lambda: not s.process.service.connections, "the connections")
            del clients, client
            s.witness.calls.clear()
            s.witness.attempts.clear()
            for _ in range(5):
                await asyncio.sleep(0.01)
                gc.collect()
            left = [held for held in gc.get_objects() if isinstance(held, ClientConnection)]
            assert not [held for held in left if held.service is s.process.service]
            assert all(held.sink is None for held in gc.get_objects() if isinstance(held, UpstreamConnection))

    run(body())
