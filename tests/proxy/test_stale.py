"""A request on a resting connection that turns out to be closed: is what was read told from what was not?

The worker is a thread with plain sockets, so that a close is one in the moment of the call.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from fakes import run
from tailrace.proxy import stale
from tailrace.proxy.address import Address
from tailrace.proxy.fault import Fault
from tailrace.proxy.pool import ConnectionPool, PoolLimits
from tailrace.proxy.sink import Sink
from tailrace.proxy.sweep import Sweep
from tailrace.proxy.upstream import UpstreamConnection

pytestmark = pytest.mark.interpreted

HEAD = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
RESET = struct.pack("ii", 1, 0)


class Heard(Sink):
    """What became of one request."""

    def __init__(self) -> None:
        self.sent_ns = 0
        self.over: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()

    def on_end(self) -> None:
        self.over.set_result(None)

    def on_fault(self, fault: Fault) -> None:
        self.over.set_result(fault)


@pytest.fixture(params=["tcp", "unix"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> socket.socket:
    """Where the worker listens."""
    sock = socket.socket(socket.AF_UNIX if request.param == "unix" else socket.AF_INET)
    sock.bind(str(tmp_path / "w") if request.param == "unix" else ("127.0.0.1", 0))
    sock.listen()
    return sock


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens soon enough to be taken for unread on that ground alone."""
    monkeypatch.setattr(stale, "SOON", -1.0)


def url_of(sock: socket.socket) -> str:
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    return f"http://127.0.0.1:{sock.getsockname()[1]}"


async def opened(pool: ConnectionPool) -> UpstreamConnection:
    done: asyncio.Future[UpstreamConnection] = asyncio.get_running_loop().create_future()
    pool.connect(done.set_result, lambda fault: done.set_exception(AssertionError(fault)))
    return await done


@asynccontextmanager
async def rested(sock: socket.socket) -> AsyncIterator[tuple[UpstreamConnection, socket.socket]]:
    """A connection that has had one answer, and the worker's end of it."""
    loop = asyncio.get_running_loop()
    pool = ConnectionPool(Address.parse(url_of(sock)), None, Sweep(loop), PoolLimits())
    connection = await opened(pool)
    with sock, sock.accept()[0] as theirs:
        theirs.settimeout(10)
        first = Heard()
        connection.send(first, HEAD % 0, b"")
        await loop.run_in_executor(None, theirs.recv, 65536)
        theirs.sendall(ANSWER)
        assert await first.over is None
        assert pool.take() is connection
        yield connection, theirs
        connection.close()


async def told(connection: UpstreamConnection, body: bytes = b"x" * 300) -> Fault:
    """Send a request that gets no answer, and give what is told of it."""
    second = Heard()
    connection.send(second, HEAD % len(body), body)
    fault = await second.over
    assert fault is not None
    assert fault.kind == "connection_lost"
    return fault


def seen_closed(connection: UpstreamConnection) -> None:
    """Wait, without a turn of the loop, until the worker's close has come."""
    assert connection.transport is not None
    assert select.select([connection.transport.get_extra_info("socket").fileno()], [], [], 10)[0]


def after(act: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("size", [300, 3_000_000])
def test_a_connection_that_was_closed_already(listening: socket.socket, size: int) -> None:
    async def body() -> None:
        async with rested(listening) as (connection, theirs):
            theirs.close()
            seen_closed(connection)
            assert not (await told(connection, b"x" * size)).sent

    run(body())


@pytest.mark.parametrize("listening", ["tcp"], indirect=True)
def test_a_connection_that_was_reset_already(listening: socket.socket) -> None:
    async def body() -> None:
        async with rested(listening) as (connection, theirs):
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            theirs.close()
            seen_closed(connection)
            assert not (await told(connection)).sent

    run(body())


def test_a_worker_that_reads_the_request_and_dies(listening: socket.socket) -> None:
    def work(theirs: socket.socket) -> None:
        got = b""
        while not got.endswith(b"x" * 300):
            got += theirs.recv(65536)
        theirs.close()

    async def body() -> None:
        async with rested(listening) as (connection, theirs):
            thread = after(lambda: work(theirs))
            assert (await told(connection)).sent
            thread.join()

    run(body())


@pytest.mark.parametrize("listening", ["tcp"], indirect=True)
def test_a_worker_that_reads_a_part_of_a_request(listening: socket.socket) -> None:
    """Whatever it has made of it: bytes were acknowledged."""

    async def body() -> None:
        async with rested(listening) as (connection, theirs):
            thread = after(lambda: (theirs.recv(1 << 20), theirs.recv(1 << 20), theirs.close()))
            assert (await told(connection, b"x" * 20_000_000)).sent
            thread.join()

    run(body())


def test_a_close_soon_behind_the_request_counts_as_one_before_it(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's timer for idle connections may end one that it has just read from."""

    async def body() -> None:
        async with rested(listening) as (connection, theirs):
            thread = after(lambda: (theirs.recv(65536), theirs.close()))
            second = Heard()
            second.sent_ns = stale.monotonic_ns()
            monkeypatch.setattr(stale, "SOON", 60.0)
            connection.send(second, HEAD % 0, b"")
            fault = await second.over
            assert fault is not None
            assert not fault.sent
            thread.join()

    run(body())


def test_under_tls_only_time_can_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    serving = authority.serving(authority.issue("worker"))
    trusting = ssl.create_default_context(cafile=str(authority.ca))

    def serve(sock: socket.socket) -> None:
        for _ in range(2):
            with serving.wrap_socket(sock.accept()[0], server_side=True, suppress_ragged_eofs=True) as theirs:
                theirs.recv(65536)
                theirs.sendall(ANSWER)
                theirs.recv(65536)

    async def body() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as sock:
            thread = after(lambda: serve(sock))
            address = Address.parse(f"https://127.0.0.1:{sock.getsockname()[1]}")
            pool = ConnectionPool(address, lambda: trusting, Sweep(loop), PoolLimits())
            for soon, sent in ((-1.0, True), (60.0, False)):
                monkeypatch.setattr(stale, "SOON", soon)
                connection = await opened(pool)
                first, second = Heard(), Heard()
                connection.send(first, HEAD % 0, b"")
                assert await first.over is None
                second.sent_ns = stale.monotonic_ns()
                connection.send(second, HEAD % 0, b"")
                fault = await second.over
                assert fault is not None
                assert fault.sent is sent
            thread.join()

    run(body())
