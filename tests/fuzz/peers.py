"""The two sides of a gateway under fuzzing: a client that sends any bytes, and a worker that reads strictly."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from typing import cast

import httptools


class Client(asyncio.Protocol):
    """One connection: what it brought is in `got`; `last` is when something last came."""

    def __init__(self) -> None:
        self.got = b""
        self.last = 0.0
        self.closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.last = self._loop.time()

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.last = self._loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    async def send(self, pieces: Sequence[bytes]) -> None:
        """Send piece by piece, for as long as the other side listens."""
        assert self._transport is not None
        for piece in pieces:
            if self.closed.is_set():
                return
            self._transport.write(piece)
            await asyncio.sleep(0)

    async def listen(self, quiet: float, first: float = 0.0) -> None:
        """Wait for the end of the connection, or until nothing came for so long; `first` is for the first bytes."""
        while not self.closed.is_set():
            rest = self.last + (quiet if self.got else max(first, quiet)) - self._loop.time()
            if rest <= 0:
                return
            try:
                async with asyncio.timeout(min(rest, quiet)):
                    await self.closed.wait()
            except TimeoutError:
                continue

    async def leave(self, *, reset: bool) -> None:
        """Close, politely or not."""
        assert self._transport is not None
        if not self.closed.is_set():
            if reset:
                _reset_on_close(self._transport)
                self._transport.abort()
            else:
                self._transport.close()
        await self.closed.wait()


class Worker(asyncio.Protocol):
    """One connection that a worker accepted: every request is recorded, and answered as `answering` says."""

    def __init__(self, house: Workers) -> None:
        self._house = house
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""
        self._task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._house.connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._house.complaints.append(f"{error!r} in {data[:300]!r}")

    def on_message_begin(self) -> None:
        self._headers, self._body = [], b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        ids = [value for name, value in self._headers if name == b"x-request-id"]
        if len(ids) != 1 or not ids[0].startswith(b"req_"):
            self._house.complaints.append(f"a request with the ids {ids}")
        if self._house.answers_well and self._task is not None and not self._task.done():
            self._house.complaints.append("a request before the answer to the one before it")
        self._house.requests += 1
        self._task = asyncio.ensure_future(self._answer(self._body))

    async def _answer(self, body: bytes) -> None:
        pieces, ending = self._house.answering(body)
        assert self.transport is not None
        for piece in pieces:
            if self.transport.is_closing():
                return
            self.transport.write(piece)
            await asyncio.sleep(0)
        if self.gone.is_set():
            return
        if ending == "reset":
            _reset_on_close(self.transport)
            self.transport.abort()
        elif ending == "close":
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.connections.discard(self)
        self.gone.set()

    async def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        await self.gone.wait()


Answering = Callable[[bytes], tuple[Sequence[bytes], str]]
"""What a body is answered with: pieces of bytes, and then to keep, close or reset the connection."""


class Workers:
    """A worker's server."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.answers_well = True
        """Whether its answers end where they say; behind one that does not, the next request may come early."""
        self.requests = 0
        self.complaints: list[str] = []
        self.connections: set[Worker] = set()
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Workers:
        self._server = await asyncio.get_running_loop().create_server(lambda: Worker(self), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in tuple(self.connections):
            await connection.end()


def _reset_on_close(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
