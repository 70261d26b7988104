"""A question of the gateway's own to a worker, over a connection like those that calls use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.proxy.fault import Fault
from tailrace.proxy.wire import ParsedHead, unframe

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.sink import Sink
    from tailrace.proxy.upstream import UpstreamConnection

LARGEST = 1 << 20


class Unanswered(Exception):  # noqa: N818 - silence is a fact about the worker
    """No usable answer; `unreachable` where there was not even a connection."""

    def __init__(self, reason: str, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.unreachable = unreachable


@asynccontextmanager
async def asking(worker: Worker, path: str, sink: Sink) -> AsyncIterator[None]:
    """A GET over a new connection; an answer that is still coming when the block ends is cut. Raises Unanswered."""
    opened: asyncio.Future[UpstreamConnection] = asyncio.get_running_loop().create_future()

    def done(connection: UpstreamConnection) -> None:
        if opened.cancelled():
            connection.close()
        else:
            opened.set_result(connection)

    def failed(fault: Fault) -> None:
        if not opened.cancelled():
            opened.set_exception(Unanswered(fault.message, unreachable=True))

    opening = worker.connections.connect(done, failed)
    try:
        connection = await opened
    except BaseException:
        opening.cancel()
        raise
    head = b"%b%b HTTP/1.1\r\n%baccept-encoding: identity\r\n\r\n"
    connection.send(sink, head % (worker.request_line("GET"), path.encode(), worker.headers), b"")
    try:
        yield
    finally:
        # After a whole answer the connection rests in the pool, and may carry a call by now.
        if connection.sink is sink:
            connection.release()


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes


async def ask(worker: Worker, path: str, limit: float) -> Answer:
    """The answer to a GET within so many seconds; raises Unanswered."""
    try:
        asked = _Asked()
        async with asyncio.timeout(limit), asking(worker, path, asked):
            return await asked.answer
    except TimeoutError:
        raise Unanswered(f"no answer to {path} within {limit:g} s") from None


class _Asked:
    """The sink of one question."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._body = b""

    def on_head(self, head: ParsedHead) -> None:
        self._status = head.status

    def on_chunks(self, chunks: bytes, count: int) -> None:
        self.on_data(unframe(chunks))

    def on_data(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > LARGEST:
            self._fail("its answer is too large")

    def on_end(self) -> None:
        if not self.answer.done():
            self.answer.set_result(Answer(self._status, self._body))

    def on_fault(self, fault: Fault) -> None:
        self._fail(fault.message)

    def on_quiet(self, quiet: float, now: float) -> None:
        """The limit is kept by whoever asks."""

    def _fail(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(Unanswered(why))
