"""A scripted worker: a server of raw bytes that records what it was asked and answers as its script says.

    async def script(conn, request):
        await conn.send(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\n{}")

    async with Upstream(script) as upstream: ...

It runs on loopback, or on a Unix socket. A script is called once a request, and the connection is kept afterwards for
the next one unless the script closed it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import orjson

Script = Callable[["Connection", "Request"], Awaitable[None]]
_Self = TypeVar("_Self", bound="Upstream")


class Request:
    """One request as the worker saw it; `headers` are in order, with the spelling they came in."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = first.split(" ", 2)
        self.headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]

    def header(self, name: str) -> str | None:
        """The first value of a header, None where it was not sent."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)


class Connection(asyncio.Protocol):
    """One connection that the worker accepted; `closed_at` is when its peer closed it, None before."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.requests: list[Request] = []
        self.closed_at: float | None = None
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._received = b""
        self._closed = asyncio.Event()
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._waiting: list[Request] = []
        self._running: asyncio.Task[None] | None = None

    # What a script does.

    async def send(self, data: bytes) -> None:
        """Send bytes; raises ConnectionResetError where the peer is gone, and waits while it reads nothing."""
        if self._gone.is_set():
            raise ConnectionResetError("the peer has closed the connection")
        self._transport.write(data)
        await self._writable.wait()
        await asyncio.sleep(0)

    def fin(self) -> None:
        """End this side: the peer reads an end of file after what was sent. What it sends is still read."""
        self._transport.write_eof()

    def rst(self) -> None:
        """Reset the connection, so that the peer gets an error and not an end of file."""
        self._reset_on_close()
        self._transport.abort()

    def close(self) -> None:
        """Close both sides once everything is sent."""
        self._transport.close()

    async def wait_closed(self) -> None:
        """Wait until the peer has closed its side or reset the connection."""
        await self._closed.wait()

    def pause_reading(self) -> None:
        """Read nothing more, so that the peer's writes pile up."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def _reset_on_close(self) -> None:
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self.upstream.connections.append(self)

    def data_received(self, data: bytes) -> None:
        """Cut requests out of the bytes and let the script answer them one after the other."""
        self._received += data
        while (request := self._cut()) is not None:
            self.requests.append(request)
            self.upstream.seen(request)
            self._waiting.append(request)
        self._go_on()

    def _cut(self) -> Request | None:
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            return None
        length = next(
            (
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        if len(rest) < length:
            return None
        self._received = rest[length:]
        return Request(head, rest[:length])

    def _go_on(self) -> None:
        if self._running is None and self._waiting:
            self._running = asyncio.get_running_loop().create_task(self._answer(self._waiting.pop(0)))
            self._running.add_done_callback(self._answered)

    async def _answer(self, request: Request) -> None:
        try:
            await self.upstream.next_script()(self, request)
        except ConnectionError:
            return

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self.upstream.errors.append(error)
            self._transport.abort()
        elif self.closed_at is not None:
            self._transport.close()
        self._go_on()

    def eof_received(self) -> bool:
        """The peer has closed its side."""
        self._peer_closed()
        return self._running is not None and not self.upstream.speaks_tls

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing can be sent or read any more."""
        self._gone.set()
        self._writable.set()
        self._peer_closed()

    def _peer_closed(self) -> None:
        if self.closed_at is None:
            self.closed_at = time.monotonic()
            self.upstream.closed_at.append(self.closed_at)
            self._closed.set()

    def pause_writing(self) -> None:
        """The peer does not read what was sent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writable.set()

    async def end(self) -> None:
        """Stop the script and close."""
        if self._running is not None:
            self._waiting.clear()
            self._running.cancel()
            await asyncio.wait([self._running])
        self._transport.abort()
        await self._gone.wait()


class Upstream:
    """The scripted worker: `async with Upstream(script) as upstream` and then `upstream.url`.

    One script answers every request; of several, each answers one and the last of them all that follow. Bytes are a
    script that sends them. A script's own error is raised where the `async with` block is left.
    """

    def __init__(
        self,
        *scripts: Script | bytes,
        unix: str | None = None,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.scripts: list[Script] = [sending(script) if isinstance(script, bytes) else script for script in scripts]
        self.connections: list[Connection] = []
        self.requests: list[Request] = []
        self.closed_at: list[float] = []
        self.errors: list[BaseException] = []
        self.url = ""
        self._unix = unix
        self._tls = tls
        self._port = port
        self._asked = 0
        self._arrived = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def speaks_tls(self) -> bool:
        """Whether its connections are encrypted, which leaves no half-closed ones."""
        return self._tls is not None

    def next_script(self) -> Script:
        """The script for the next request."""
        self._asked += 1
        return self.scripts[min(self._asked, len(self.scripts)) - 1]

    def seen(self, request: Request) -> None:
        """A whole request has arrived."""
        self.requests.append(request)
        self._arrived.set()

    async def asked(self, count: int = 1) -> Request:
        """Wait until so many requests have arrived in all; gives the last of them."""
        while len(self.requests) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.requests[count - 1]

    async def __aenter__(self: _Self) -> _Self:
        loop = asyncio.get_running_loop()
        if self._unix is not None:
            self._server = await loop.create_unix_server(lambda: Connection(self), self._unix, ssl=self._tls)
            self.url = f"unix:{self._unix}"
            return self
        self._server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls is not None else 'http'}://127.0.0.1:{self._port}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.refuse()
        for connection in self.connections:
            await connection.end()
        if self.errors and kind is None:
            raise self.errors[0]

    def refuse(self) -> None:
        """Stop listening: new connections are refused, those that are open go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def listen_again(self) -> None:
        """Listen on the same address again."""
        await self.__aenter__()


def sending(*pieces: bytes | float) -> Script:
    """A script that sends bytes as they are; a number is a pause of so many seconds."""

    async def script(conn: Connection, request: Request) -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                await conn.send(piece)
            else:
                await asyncio.sleep(piece)

    return script
