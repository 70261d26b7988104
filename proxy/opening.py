"""A connection that is on its way to a worker: until it is there it can be asked whether anybody has answered."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time

from tailrace.proxy.tcp import acknowledged


class Opening:
    """One attempt, which may go through some addresses; `sent` is the second in which the present one was begun."""

    __slots__ = ("_sock", "sent")

    def __init__(self) -> None:
        self.sent = math.inf
        self._sock: socket.socket | None = None

    async def connect(self, loop: asyncio.AbstractEventLoop, ip: str, port: int) -> socket.socket:
        """A socket that somebody has answered, which the caller owns; raises OSError."""
        sock = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        self._sock, self.sent = sock, time.monotonic()
        try:
            try:
                sock.connect((ip, port))
            except BlockingIOError:
                await _answered(loop, sock)
        except BaseException:
            sock.close()
            raise
        return sock

    def acknowledged(self) -> tuple[bool, float] | None:
        """What the kernel says of it: see `tcp.acknowledged`."""
        return acknowledged(self._sock)

    def settle(self) -> None:
        """Somebody has answered: it need not be asked about any more, though a handshake may still go on."""
        self.sent = math.inf


async def _answered(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    answer: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock, _note, answer)
    try:
        await answer
    finally:
        loop.remove_writer(sock)
    if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))


def _note(answer: asyncio.Future[None]) -> None:
    if not answer.done():
        answer.set_result(None)
