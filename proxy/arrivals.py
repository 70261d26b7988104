"""Accepts connections on which something comes before HTTP, a PROXY header, then a TLS handshake, and those that
several processes share.

The event loop's own servers take all that is waiting and begin to read at once, so this has its own accept loop: it
takes no more than this process's share; a PROXY header is peeked at and exactly its bytes are consumed, then the socket
is handed over.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailrace.proxy.fault import Fault, Whose
from tailrace.proxy.proxy_protocol import MAX_V2, BadHeader, Origin, Reading
from tailrace.proxy.share import PATIENCE, PAUSE, Share

if TYPE_CHECKING:
    from tailrace.proxy.service import Service

log = logging.getLogger("tailrace")
_AT_ONCE = 64
_PAUSE = 1.0
_TELL_EVERY = 10.0


class Arrivals:
    """The connections of one listening socket until they are ready for HTTP.

    `connection` makes the protocol for an origin; `context` gives the TLS context of this moment, None for plain text;
    `shown` names the listener in the log.
    """

    def __init__(
        self,
        service: Service,
        sock: socket.socket,
        connection: Callable[[Origin | None], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext | None],
        *,
        proxied: bool,
        shown: str,
    ) -> None:
        self._service = service
        self._loop = service.loop
        self._socket = sock
        self._connection = connection
        self._context = context
        self._proxied = proxied
        self._shown = shown
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._left_since: float | None = None
        self._seen: Sequence[int] = ()
        self._tell_at = 0.0

    def open(self) -> None:
        """Begin to accept."""
        self._pause = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting; those that are arriving go on."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())

    def drop(self) -> None:
        """Let go of those that are arriving."""
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        share = self._service.share
        for _ in range(_AT_ONCE):
            if share is not None and not self._may_take(share):
                return
            try:
                sock, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Out of descriptors, most likely: those that are open must end before more can come.
                log.error("%s: cannot accept for now: %s", self._shown, error)
                self.close()
                self._pause = self._loop.call_later(_PAUSE, self.open)
                return
            if self._service.full(len(self._tasks)):
                sock.close()
                continue
            sock.setblocking(False)
            task = self._loop.create_task(self._admit(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _may_take(self, share: Share) -> bool:
        """Whether it is this process's turn; where not, look again in a moment."""
        connections, now = len(self._service.connections) + len(self._tasks), self._loop.time()
        if share.may_take(connections, now):
            self._left_since = None
            return True
        if self._left_since is None:
            self._left_since, self._seen = now, share.seen()
        elif now - self._left_since >= PATIENCE:
            self._left_since = None
            share.pass_over(connections, self._seen, now)
            return True
        self.close()
        self._pause = self._loop.call_later(PAUSE, self.open)
        return False

    async def _admit(self, sock: socket.socket) -> None:
        """Bring one connection to its first byte of HTTP, or close it."""
        limit = self._service.chain.timeouts.client_head
        handed_over = False
        kind = "proxy_header"
        try:
            async with asyncio.timeout(limit):
                origin = await self._origin_of(sock) if self._proxied else None
                connection = self._connection(origin)
                context = self._context()
                kind, handed_over = "tls_handshake", True
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    sock,
                    ssl=context,
                    ssl_handshake_timeout=limit if context is not None else None,
                )
        except TimeoutError:
            self._refused(kind, f"nothing whole within {limit:g} s")
        except (BadHeader, OSError) as error:
            self._refused(kind, str(error))
        finally:
            if not handed_over:
                sock.close()

    async def _origin_of(self, sock: socket.socket) -> Origin:
        reading = Reading()
        while reading.origin is None:
            try:
                there = sock.recv(MAX_V2, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                await self._readable(sock)
                continue
            if not there:
                raise BadHeader("the connection ended before its PROXY header")
            sock.recv(reading.take(there))
        return reading.origin

    async def _readable(self, sock: socket.socket) -> None:
        readable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(sock.fileno(), _settle, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(sock.fileno())

    def _refused(self, kind: str, why: str) -> None:
        """Count a connection that never came to HTTP; the log hears of the first in a while."""
        self._service.refused(
            Fault(kind=kind, whose=Whose.CLIENT, status=400, code=kind, message=f"The connection was refused: {why}.")
        )
        now = self._loop.time()
        if now >= self._tell_at:
            self._tell_at = now + _TELL_EVERY
            log.warning("%s: a connection was closed before its first request: %s", self._shown, why)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
