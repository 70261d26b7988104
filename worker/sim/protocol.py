"""The server's side of one connection: requests in, one at a time, and bytes out."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools
from tailrace.worker.sim.clock import Clock, Timer
from tailrace.worker.sim.errors import Refusal
from tailrace.worker.sim.exchange import Exchange, Request
from tailrace.worker.sim.heads import CONTINUE, Heads
from tailrace.worker.sim.stillness import KEPT, Stillness

_LOG = logging.getLogger(__name__)
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, for no time: close sends RST."""


class Connection(asyncio.Protocol):
    """Parses requests, hands them to `serve` in order, and closes as uvicorn does."""

    def __init__(
        self,
        serve: Callable[[Exchange], None],
        heads: Heads,
        clock: Clock,
        keep_alive_s: float,
        stillness: Stillness,
        open_connections: set[Connection],
    ) -> None:
        self.heads = heads
        self.from_loopback = False
        self._serve = serve
        self._clock = clock
        self._keep_alive_s = keep_alive_s
        self._stillness = stillness
        self._fresh = True
        """Nothing has come yet."""
        self._deaf = False
        """Nothing that comes is ever heard."""
        self._midway = False
        """A request has come in part."""
        self._kept = bytearray()
        """What came while the server stood still."""
        self._overdue = False
        """Idle for too long, while the server stood still."""
        self._open = open_connections
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._current: Exchange | None = None
        self._queued: deque[Request] = deque()
        self._idle: Timer | None = None
        self._shutting_down = False
        self._pumping = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = cast("asyncio.Transport", transport)
        self._open.add(self)
        peer = transport.get_extra_info("peername")
        self.from_loopback = not isinstance(peer, tuple) or ipaddress.ip_address(peer[0]).is_loopback

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._fresh:
            self._fresh = False
            self._deaf = not self._stillness.meets(data)
        if self._deaf:
            self._transport.pause_reading()
            return
        if self._stillness.frozen and (self._kept or not self._hears(data)):
            self._keep(data)
            return
        self._rest()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError:
            if self._current is None:
                self.write(self.heads.not_http())
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over, whoever ended it."""
        self._open.discard(self)
        self._rest()
        self._queued.clear()
        current, self._current = self._current, None
        if current is not None:
            current.leave()

    def _hears(self, data: bytes) -> bool:
        """Whether a frozen server takes this in: what goes to the control endpoint."""
        if self._midway:
            return self._stillness.hears(b"POST " + self._url)
        return self._current is None and self._stillness.hears(data)

    def _keep(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) >= KEPT:
            self._transport.pause_reading()

    def thaw(self) -> None:
        """Take in what came while the server stood still."""
        kept, self._kept = bytes(self._kept), bytearray()
        if self._transport.is_closing():
            return
        if kept:
            self._transport.resume_reading()
            self.data_received(kept)
        elif self._overdue:
            self._transport.close()

    # What the parser calls.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._midway = True
        self._url, self._headers, self._body = b"", {}, []

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is complete."""
        if self._headers.get(b"expect", b"").lower() == b"100-continue":
            self.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._midway = False
        request = Request(
            self._parser.get_method().decode(),
            self._url.split(b"?", 1)[0].decode("latin-1"),
            self._headers,
            b"".join(self._body),
            self._parser.should_keep_alive(),
        )
        self._queued.append(request)
        if self._current is None:
            self._pump()
        else:
            self._transport.pause_reading()

    # What an exchange calls.

    def write(self, data: bytes) -> None:
        """Send bytes; the loop joins all that one pass writes into one system call."""
        self._transport.write(data)

    def closing(self, request: Request) -> bool:
        """Whether the connection ends with the answer to this request."""
        return self._shutting_down or not request.keep_alive

    def answered(self) -> None:
        """The current answer is complete."""
        done, self._current = self._current, None
        if done is None or self._transport.is_closing():
            return
        if self.closing(done.request):
            self._transport.close()
        elif self._queued:
            self._pump()
        else:
            self._transport.resume_reading()
            self._idle = self._clock.call_at(self._clock.now() + self._keep_alive_s, self._expire)

    def _expire(self) -> None:
        self._overdue = self._stillness.frozen
        if not self._overdue:
            self._transport.close()

    def drop(self, *, rst: bool = False) -> None:
        """End the connection now: FIN after what was written, or a reset."""
        self._current = None
        if rst:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()
        else:
            self._transport.close()

    def shut_down(self) -> None:
        """Take no further request: close now if idle, else after the answer."""
        self._shutting_down = True
        if self._current is None:
            self._transport.close()

    def lose(self, *, rst: bool = False) -> None:
        """End the connection whatever it is doing, as when the process dies."""
        current, self._current = self._current, None
        self.drop(rst=rst)
        if current is not None:
            current.leave()

    def _rest(self) -> None:
        self._overdue = False
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _pump(self) -> None:
        """Serve what is queued until an answer takes its time; not from within, or pipelines would pile up calls."""
        if self._pumping:
            return
        self._pumping = True
        while self._queued and self._current is None and not self._transport.is_closing():
            exchange = self._current = Exchange(self, self._queued.popleft())
            try:
                self._serve(exchange)
            except Refusal as refusal:
                exchange.refuse(refusal)
            except Exception:
                _LOG.exception("simulated engine failed on %s", exchange.request.path)
                exchange.refuse(Refusal(500, "Internal server error", "InternalServerError"))
        self._pumping = False
