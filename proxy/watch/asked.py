"""The whole answer to a question of the gateway's own, gathered within a bound."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from tailrace.proxy.fault import Fault
from tailrace.proxy.sink import Sink
from tailrace.proxy.wire import ParsedHead, unframe

LARGEST: Final = 1 << 20
CLOSED: Final = "it closes connections without an answer"


class Unanswered(Exception):  # noqa: N818 - silence is a fact about the worker
    """No usable answer; `unreachable` where there was no connection, or one that was closed at once."""

    def __init__(self, reason: str, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.unreachable = unreachable


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes


class Asked(Sink):
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
        if fault.kind == "connection_lost" and not self._status:
            self._fail(CLOSED, unreachable=True)
        else:
            self._fail(fault.message)

    def on_quiet(self, quiet: float, now: float) -> None:
        """The limit is kept by whoever asks."""

    def _fail(self, why: str, *, unreachable: bool = False) -> None:
        if not self.answer.done():
            self.answer.set_exception(Unanswered(why, unreachable=unreachable))
