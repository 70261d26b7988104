"""A client of raw bytes: sends what it is told and shows the framing of what comes back."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import orjson
from tailrace.proxy.sse import Event, Splitter


@dataclass(frozen=True, slots=True)
class RawHead:
    """The head of an answer, with its bytes."""

    raw: bytes
    status: int
    headers: list[tuple[str, str]]

    def header(self, name: str) -> str | None:
        """The first value of a header, None where there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it came.

    `raw_body` has the chunked framing still in it, `chunks` are the chunks without it; `complete` is False where the
    connection ended before the framing did.
    """

    head: RawHead
    body: bytes
    raw_body: bytes
    chunks: list[bytes]
    complete: bool

    @property
    def status(self) -> int:
        """The status code."""
        return self.head.status

    def header(self, name: str) -> str | None:
        """The first value of a header, None where there is none."""
        return self.head.header(name)

    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)

    @property
    def events(self) -> list[Event]:
        """The body's server-sent events."""
        splitter = Splitter()
        return splitter.feed(self.body) + splitter.finish()


class RawClient:
    """One connection to a URL (http://, https:// or unix:/path): `async with RawClient(url) as client`."""

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None) -> None:
        self.url = url
        self._tls = tls
        self._reader: asyncio.StreamReader = None  # type: ignore[assignment]
        self._writer: asyncio.StreamWriter = None  # type: ignore[assignment]

    @classmethod
    async def connect(cls, url: str, *, tls: ssl.SSLContext | None = None) -> RawClient:
        """A connected client, to be closed by the caller."""
        return await cls(url, tls=tls).__aenter__()

    async def __aenter__(self) -> RawClient:
        if self.url.startswith("unix:"):
            path = self.url.removeprefix("unix:")
            self._reader, self._writer = await asyncio.open_unix_connection(path, ssl=self._tls)
        else:
            parts = urlsplit(self.url)
            self._reader, self._writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except (OSError, ssl.SSLError):
            return

    @property
    def address(self) -> str:
        """Where this side of the connection is: HOST:PORT."""
        name = self._writer.get_extra_info("sockname")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"

    async def send(self, data: bytes) -> None:
        """Send bytes; waits while the peer reads nothing."""
        self._writer.write(data)
        await self._writer.drain()

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, version: str = "1.1"
    ) -> None:
        """Send a whole request with the headers that it needs, where `headers` does not say otherwise."""
        lines = {"host": urlsplit(self.url).netloc or "unix"}
        if body or method in ("POST", "PUT", "PATCH"):
            lines |= {"content-type": "application/json", "content-length": str(len(body))}
        lines |= {key.lower(): value for key, value in (headers or {}).items()}
        head = f"{method} {path} HTTP/{version}\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        await self.send(head.encode("latin-1") + b"\r\n" + body)

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        """Send a JSON request and read its answer."""
        await self.request("POST", path, body if isinstance(body, bytes) else orjson.dumps(body), headers)
        return await self.read_answer()

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        """Send a GET and read its answer."""
        await self.request("GET", path, b"", headers)
        return await self.read_answer()

    async def read_some(self) -> bytes:
        """The next bytes, b"" at the end; raises ConnectionResetError where the peer reset the connection."""
        return await self._reader.read(65536)

    async def read_exactly(self, count: int) -> bytes:
        """So many bytes; raises IncompleteReadError where the connection ends before."""
        return await self._reader.readexactly(count)

    async def read_until(self, mark: bytes) -> bytes:
        """Everything up to the mark and with it; raises IncompleteReadError where the connection ends before."""
        return await self._reader.readuntil(mark)

    async def read_until_close(self) -> bytes:
        """Everything that still comes; a reset ends it like an end of file."""
        parts = []
        try:
            while data := await self.read_some():
                parts.append(data)
        except ConnectionResetError:
            pass
        return b"".join(parts)

    async def read_head(self) -> RawHead:
        """The next head, an interim one (100) included."""
        raw = await self.read_until(b"\r\n\r\n")
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        return RawHead(raw, int(first.split(" ")[1]), headers)

    async def read_chunk(self) -> tuple[bytes, bytes] | None:
        """The next chunk, without its framing and with it; the last is empty; None where the connection ended."""
        try:
            size = await self.read_until(b"\r\n")
            rest = await self.read_exactly(int(size.split(b";")[0], 16) + 2)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None
        return rest[:-2], size + rest

    async def read_answer(self, *, method: str = "POST") -> Answer:
        """A whole answer, or what came of it."""
        head = await self.read_head()
        if method == "HEAD" or head.status in (204, 304) or head.status < 200:
            return Answer(head, b"", b"", [], complete=True)
        if head.header("transfer-encoding") == "chunked":
            return await self._read_chunked(head)
        length = head.header("content-length")
        if length is None:
            body = await self.read_until_close()
            return Answer(head, body, body, [], complete=True)
        try:
            body = await self.read_exactly(int(length))
        except asyncio.IncompleteReadError as error:
            return Answer(head, error.partial, error.partial, [], complete=False)
        return Answer(head, body, body, [], complete=True)

    async def _read_chunked(self, head: RawHead) -> Answer:
        chunks: list[bytes] = []
        raw = b""
        while (chunk := await self.read_chunk()) is not None:
            raw += chunk[1]
            if not chunk[0]:
                return Answer(head, b"".join(chunks), raw, chunks, complete=True)
            chunks.append(chunk[0])
        return Answer(head, b"".join(chunks), raw, chunks, complete=False)

    def fin(self) -> None:
        """Close the sending side only."""
        self._writer.write_eof()

    def rst(self) -> None:
        """Reset the connection."""
        sock = self._writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
