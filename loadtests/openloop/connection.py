"""One connection to the endpoint, which carries one request at a time."""

import asyncio
import time
from collections.abc import Callable
from typing import cast

from openloop.answer import Answer
from openloop.dialects import Dialect
from openloop.record import Outcome, Record


class Connection(asyncio.Protocol):
    """Reports `on_free` when it can carry another request, and `on_lost` once when it is gone."""

    __slots__ = ("_answer", "_dialect", "_on_free", "_on_lost", "_record", "_stream", "_transport", "alive", "made")

    def __init__(
        self,
        dialect: Dialect,
        *,
        stream: bool,
        on_free: Callable[["Connection", Record], None],
        on_lost: Callable[["Connection", Record | None], None],
    ) -> None:
        self._dialect = dialect
        self._stream = stream
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._record: Record | None = None
        self._answer: Answer | None = None
        self.alive = False
        self.made = False  # from then on `on_lost` is certain to come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.alive = self.made = True

    def send(self, record: Record, request: bytes) -> None:
        """Send a request; the connection must be alive and free."""
        assert self._transport is not None
        self._record = record
        self._answer = Answer(record, self._dialect, stream=self._stream)
        record.sent = time.monotonic_ns()
        self._transport.write(request)

    def abandon(self, outcome: Outcome, now: int, detail: str) -> None:
        """Give up on the request under way, and so on the connection."""
        if self._record is not None and self._record.outcome is None:
            self._record.finish(outcome, now, detail)
        self.close()

    def close(self) -> None:
        self.alive = False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        answer, record = self._answer, self._record
        if answer is None or record is None or record.outcome is not None:
            self.close()
            return
        answer.feed(data, time.monotonic_ns())
        if not answer.complete:
            return
        if answer.reusable:
            self._record = self._answer = None
            self._on_free(self, record)
        else:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = False
        record, self._record = self._record, None
        if record is not None and record.outcome is None and self._answer is not None:
            why = f"connection reset ({exc})" if exc else "connection closed"
            self._answer.connection_ended(time.monotonic_ns(), why)
        self._answer = None
        self._on_lost(self, record)
