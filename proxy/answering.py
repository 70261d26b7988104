"""The answering side of a client connection: heads, framing, compression and the client's backpressure."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Final

from tailrace.proxy import compress, framing
from tailrace.proxy.head import Head

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.service import Service
    from tailrace.proxy.stream_relay import StreamRelay

_RESET: Final = struct.pack("ii", 1, 0)


class Answering:
    """Writes one answer at a time, that of `call`; the reading side is ClientConnection."""

    __slots__ = (
        "_closing",
        "_encoder",
        "_pending",
        "_severed",
        "call",
        "chunked",
        "gone",
        "loop",
        "paused",
        "paused_at",
        "relay",
        "sent",
        "service",
        "started",
        "transport",
        "upstream",
        "writable",
    )

    def __init__(self, service: Service) -> None:
        self.service = service
        self.loop = service.loop
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.call: Call | None = None
        self.relay: StreamRelay | None = None
        self.upstream: asyncio.Transport | None = None
        self.gone = False
        self.started = False
        self.chunked = True
        self.paused = False
        self.paused_at = 0.0
        self.writable: asyncio.Future[None] | None = None
        self.sent = 0
        self._pending = b""
        self._closing = False
        self._severed = False
        self._encoder: compress.Encoder | None = None

    def pause_writing(self) -> None:
        self.paused = True
        self.paused_at = self.service.clock.now
        if self.upstream is not None and self.holds_back:
            self.upstream.pause_reading()

    def resume_writing(self) -> None:
        self.paused = False
        if self.upstream is not None:
            self.upstream.resume_reading()
        if self.writable is not None and not self.writable.done():
            self.writable.set_result(None)

    @property
    def holds_back(self) -> bool:
        """Whether its worker waits until it takes more: not as long as others follow its answer."""
        call = self.call
        return self.paused and (call is None or call.sharing is None or not call.sharing.outlives())

    def quicken(self) -> None:
        """Somebody follows its answer."""
        if self.paused and self.upstream is not None:
            self.upstream.resume_reading()

    def slacken(self, most: int) -> None:
        """Hold its worker back after all where more than so many bytes wait for it."""
        if self.paused and self.upstream is not None and self.transport.get_write_buffer_size() > most:
            self.upstream.pause_reading()

    async def drained(self) -> None:
        """Wait until the client takes bytes again."""
        if self.paused:
            self.writable = self.loop.create_future()
            await self.writable

    def proceed(self) -> None:
        """Tell a client that waits for it to send its body."""
        self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def reply(self, head: Head, body: bytes) -> None:
        """Send a whole answer."""
        call = self.call
        assert call is not None
        close = self._closes_after(call)
        if len(body) >= call.chain.compression.at_least:
            body = self._compressed(call, head, body)
        lines = framing.head_lines(head, call.id, call.route.anthropic)
        self.started = True
        self.sent = len(body)
        if call.head.method == "HEAD" or head.status in (204, 304):
            length, body = _length_of_none(call, head.status, len(body)), b""
        else:
            length = b"content-length: %d\r\n" % len(body)
        self.transport.write(lines + length + (b"connection: close\r\n\r\n" if close else b"\r\n") + body)

    def _compressed(self, call: Call, head: Head, body: bytes) -> bytes:
        coding = _coding(call, head)
        if coding is None:
            return body
        compress.mark(head, coding)
        return compress.whole(coding, body)

    def begin(self, head: Head) -> None:
        """Start an answer whose length is not known; its head leaves with the first bytes."""
        if self.started:
            return
        call = self.call
        assert call is not None
        self._encoder = None
        self.sent = 0
        if call.chain.compression.streams:
            coding = _coding(call, head)
            if coding is not None:
                compress.mark(head, coding)
                self._encoder = compress.encoder(coding)
        lines = framing.head_lines(head, call.id, call.route.anthropic)
        self.started = True
        if self.chunked:
            close = b"connection: close\r\n" if self._closes_after(call) else b""
            self._pending = lines + b"transfer-encoding: chunked\r\n" + close + b"\r\n"
        else:
            self._closing = True
            self._pending = lines + b"connection: close\r\n\r\n"

    @property
    def passes_chunks(self) -> bool:
        """Whether a worker's chunks may go on with their own framing."""
        return self.chunked and self._encoder is None

    @property
    def head_sent(self) -> bool:
        """Whether the head of a begun answer has left."""
        return not self._pending

    def send_chunks(self, chunks: bytes) -> None:
        """Send some of the body that is framed already."""
        if self._pending:
            chunks = self._pending + chunks
            self._pending = b""
        self.transport.write(chunks)

    def send(self, data: bytes) -> None:
        """Send some of the body."""
        if not data:
            return
        if self._encoder is not None:
            data = self._encoder.piece(data)
        if self.chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self.sent += len(data)
        if self._pending:
            data = self._pending + data
            self._pending = b""
        self.transport.write(data)

    def end(self) -> None:
        """Send the end of the framing."""
        if self._encoder is not None:
            rest, self._encoder = self._encoder.end(), None
            self.send(rest)
        data = self._pending
        self._pending = b""
        if self.chunked:
            data += b"0\r\n\r\n"
        if data:
            self.transport.write(data)

    def cut(self, *, told: bool = True) -> None:
        """Close without the end of the framing, after what was sent: the client can tell that something is missing.

        Without chunks it could not, so the connection is reset instead, unless it was `told` in an event. A Unix socket
        knows no reset: there the half of an event, or of JSON, is all that tells.
        """
        if not told and not self.chunked:
            sock = self.transport.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._severed = self.transport.get_extra_info("sslcontext") is not None
        if self._pending:
            self.transport.write(self._pending)
            self._pending = b""
        self._closing = True

    def close(self) -> None:
        """Close the connection behind what was sent."""
        if self._severed:
            # TLS would say that this is the proper end. What was written leaves before the next turn of the loop.
            self.loop.call_soon(self.transport.abort)
        else:
            self.transport.close()

    def _closes_after(self, call: Call) -> bool:
        if self._closing or not call.keep_alive or not call.complete or self.service.draining:
            self._closing = True
        return self._closing


def _coding(call: Call, head: Head) -> str | None:
    """How an answer is compressed; one that is passed through stays as it is."""
    if call.route.entry is not None:
        return None
    return compress.chosen(call.chain.compression, call.head.folded.get(b"accept-encoding"), head)


def _length_of_none(call: Call, status: int, length: int) -> bytes:
    """The line that says how long a body would be that is not sent: what the worker says, where the answer is its."""
    race = call.race
    if race is not None and race.winner is not None:
        length = race.winner.head.length
    return b"" if status in (204, 304) or length < 0 else b"content-length: %d\r\n" % length
