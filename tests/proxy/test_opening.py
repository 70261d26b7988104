"""Connections on their way to a worker, and what the kernel says of them."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import math
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from certificates import Authority
from fakes import run, until
from tailrace.proxy import tcp
from tailrace.proxy.address import Address
from tailrace.proxy.fault import Fault
from tailrace.proxy.opening import Opening
from tailrace.proxy.pool import ConnectionPool, PoolLimits
from tailrace.proxy.sweep import Sweep
from tailrace.proxy.upstream import UpstreamConnection
from tailrace.proxy.watch.asked import Asked, Unanswered

_ATTACH_FILTER, _DETACH_FILTER = 26, 27


@contextmanager
def full() -> Iterator[socket.socket]:
    """A port on which the kernel answers nobody any more: too many wait for somebody to accept them."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as sock:
        waiting = socket.create_connection(sock.getsockname())
        try:
            yield sock
        finally:
            waiting.close()


def pool_of(
    sock: socket.socket, connect: float = 1.0, tls: Callable[[], ssl.SSLContext] | None = None
) -> ConnectionPool:
    address = Address.parse(f"http{'s' if tls else ''}://127.0.0.1:{sock.getsockname()[1]}")
    return ConnectionPool(address, tls, Sweep(asyncio.get_running_loop()), PoolLimits(connect=connect))


def deafen(sock: socket.socket) -> None:
    """Have the kernel drop every packet for this end before it acknowledges any, as if its host were gone."""
    drop = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))
    sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(drop)))


async def opened(pool: ConnectionPool) -> UpstreamConnection | Fault:
    done: asyncio.Future[UpstreamConnection | Fault] = asyncio.get_running_loop().create_future()
    pool.connect(done.set_result, done.set_result)
    return await done


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_that_is_answered(host: str) -> None:
    async def body() -> None:
        with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
            opening = Opening()
            assert opening.sent == math.inf
            assert opening.acknowledged() is None
            there = await opening.connect(asyncio.get_running_loop(), host, sock.getsockname()[1])
            with there, sock.accept()[0] as theirs:
                arrived, silence = opening.acknowledged() or (False, math.inf)
                assert arrived
                assert silence < 10
                theirs.sendall(b"x")
                assert await asyncio.get_running_loop().sock_recv(there, 1) == b"x"
                assert 0 < tcp.round_trip(there) < 1
                assert tcp.bytes_acknowledged(there) == 1
            assert opening.acknowledged() is None

    run(body())


def test_one_that_nobody_answers_is_given_up_whole() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        with full() as sock:
            opening = Opening()
            connecting = asyncio.ensure_future(opening.connect(loop, *sock.getsockname()))
            await until(lambda: opening.sent < math.inf)
            assert opening.acknowledged() == (False, math.inf)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            assert opening.acknowledged() is None

    run(body())


def test_one_that_is_refused_says_so() -> None:
    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            place = sock.getsockname()
        with pytest.raises(ConnectionRefusedError) as refused:
            await Opening().connect(asyncio.get_running_loop(), *place)
        assert (refused.value.errno, refused.value.strerror) == (errno.ECONNREFUSED, "Connection refused")

    run(body())


def test_of_other_sockets_nothing_is_known() -> None:
    one, two = socket.socketpair()
    with one, two:
        assert tcp.acknowledged(one) is None
        assert tcp.bytes_acknowledged(one) is None
        assert tcp.round_trip(one) == 0.0
    assert tcp.acknowledged(None) is None


def test_a_pool_shows_what_is_on_its_way_and_when_somebody_answered() -> None:
    async def body() -> None:
        with full() as sock:
            pool = pool_of(sock, connect=0.2)
            connecting = asyncio.ensure_future(opened(pool))
            await until(lambda: any(opening.sent < math.inf for opening in pool.openings))
            (opening,) = pool.openings
            assert opening.acknowledged() == (False, math.inf)
            assert isinstance(await connecting, Fault)
            assert not pool.openings
            assert pool.reached == 0.0
        with socket.create_server(("127.0.0.1", 0)) as sock:
            pool = pool_of(sock)
            connection = await opened(pool)
            assert isinstance(connection, UpstreamConnection)
            assert not pool.openings
            assert pool.reached == pool.sweep.clock.now
            connection.close()

    run(body())


def test_who_knocks_leaves_nothing_behind() -> None:
    async def body() -> None:
        refused: list[object] = []
        with socket.create_server(("127.0.0.1", 0)) as sock:
            pool = pool_of(sock)
            pool.broken = refused.append
            pool.knock()
            await until(lambda: pool.reached)
            theirs, _ = sock.accept()
            with theirs:
                theirs.settimeout(10)
                assert theirs.recv(1) == b""
            assert (pool.open, pool.resting, len(pool.openings)) == (0, 0, 0)
        assert not refused
        pool.knock()
        await until(lambda: refused)
        assert refused == [None]
        assert not pool.openings
        pool.close()
        pool.knock()
        await asyncio.sleep(0.05)
        assert refused == [None]

    run(body())


def test_a_request_that_has_arrived_is_settled_until_the_next_one() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as sock:
            connection = await opened(pool_of(sock))
            assert isinstance(connection, UpstreamConnection)
            assert not connection.unsettled
            with sock.accept()[0] as theirs:
                theirs.settimeout(10)
                for _ in range(2):
                    asked = Asked()
                    connection.send(asked, b"GET / HTTP/1.1\r\n\r\n", b"")
                    assert connection.unsettled
                    assert connection.sent >= connection.touched
                    await loop.run_in_executor(None, theirs.recv, 100)
                    # Which takes a moment: it may wait for an answer to go with.
                    await until(lambda: (connection.acknowledged() or (False, 0.0))[0])
                    connection.settle()
                    assert not connection.unsettled
                    theirs.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    await asked.answer
                asked = Asked()
                connection.send(asked, b"GET / HTTP/1.1\r\n\r\n", b"")
                theirs.sendall(b"HTTP/1.1 200")
                await until(lambda: connection.got_bytes)
                assert not connection.unsettled
            with pytest.raises(Unanswered):
                await asked.answer
            await until(lambda: connection.transport is None)
            assert connection.acknowledged() is None
            assert not connection.unsettled

    run(body())


@pytest.mark.parametrize("tls", [False, True])
def test_a_request_to_a_host_that_is_gone_is_not_acknowledged(tmp_path: Path, tls: bool) -> None:
    authority = Authority(tmp_path)
    serving = authority.serving(authority.issue("worker"))
    trusting = ssl.create_default_context(cafile=str(authority.ca))

    def serve(sock: socket.socket) -> socket.socket:
        theirs, _ = sock.accept()
        if tls:
            theirs = serving.wrap_socket(theirs, server_side=True, suppress_ragged_eofs=True)
        theirs.settimeout(10)
        theirs.recv(100)
        theirs.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        return theirs

    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            serving_it = asyncio.get_running_loop().run_in_executor(None, serve, sock)
            connection = await opened(pool_of(sock, 10.0, (lambda: trusting) if tls else None))
            assert isinstance(connection, UpstreamConnection)
            first, second = Asked(), Asked()
            connection.send(first, b"GET / HTTP/1.1\r\n\r\n", b"")
            await first.answer
            with await serving_it as theirs:
                await until(lambda: (connection.acknowledged() or (False, 0.0))[0])
                deafen(theirs)
                connection.send(second, b"GET / HTTP/1.1\r\n\r\n", b"")
                await until(lambda: (connection.acknowledged() or (True, 0.0))[1] > 0.15)
                assert connection.acknowledged()[0] is False  # type: ignore[index]
                theirs.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
                # The kernel sends it again.
                await until(lambda: (connection.acknowledged() or (False, 0.0))[0])
            with pytest.raises(Unanswered):
                await second.answer
            await until(lambda: connection.transport is None)

    run(body())


def test_whoever_answered_while_the_loop_stood_still_has_answered() -> None:
    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            pool = pool_of(sock, connect=0.05)
            asking = asyncio.ensure_future(opened(pool))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            time.sleep(0.2)
            found = await asking
            assert isinstance(found, UpstreamConnection), found
            found.close()

    run(body())
