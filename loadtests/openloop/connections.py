"""Carries requests over a bounded number of connections; what finds none free waits its turn."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from openloop.connection import Connection
from openloop.dialects import Dialect
from openloop.record import Outcome, Record


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go."""

    address: str
    port: int
    server_name: str
    tls: ssl.SSLContext | None


@dataclass(slots=True)
class _Turn:
    """A request on its way: waiting, connecting or on a connection."""

    record: Record
    request: bytes
    connection: Connection | None = None
    opening: "asyncio.Task[None] | None" = None


class Connections:
    """At most `limit` connections. Each record gets its outcome here, then goes to `on_finished` exactly once."""

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        *,
        stream: bool,
        keepalive: bool,
        limit: int,
        timeout: int,
        on_finished: Callable[[Record], None],
    ) -> None:
        self._endpoint = endpoint
        self._dialect = dialect
        self._stream = stream
        self._keepalive = keepalive
        self._limit = limit
        self._timeout = timeout
        self._on_finished = on_finished
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._open = 0  # connecting ones included
        self._emptied: asyncio.Event | None = None
        self._waiting: deque[_Turn] = deque()
        self._pending: deque[_Turn] = deque()  # in the order of their schedule, so of their deadlines

    def send(self, record: Record, request: bytes) -> None:
        """Send on an idle connection, else on a new one, else when one becomes free."""
        turn = _Turn(record, request)
        self._pending.append(turn)
        while self._idle:
            connection = self._idle.pop()
            if connection.alive:
                self._carry(turn, connection)
                return
        if self._open < self._limit:
            self._begin_opening(turn)
        else:
            self._waiting.append(turn)

    def expire(self, now: int) -> None:
        """Give up on every request whose deadline, counted from its scheduled time, has passed."""
        pending = self._pending
        while pending and (pending[0].record.outcome is not None or now >= pending[0].record.scheduled + self._timeout):
            self._give_up(pending.popleft(), Outcome.TIMEOUT, now, "no whole answer in time")

    def interrupt(self, now: int) -> None:
        """Give up on everything that has not finished."""
        while self._pending:
            self._give_up(self._pending.popleft(), Outcome.UNFINISHED, now, "the run was interrupted")

    async def close(self) -> None:
        """Close every connection; nothing may be sent afterwards."""
        for connection in self._idle:
            connection.close()
        if self._open:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def _give_up(self, turn: _Turn, outcome: Outcome, now: int, detail: str) -> None:
        if turn.record.outcome is not None:
            return
        if turn.connection is not None:
            turn.connection.abandon(outcome, now, detail)  # on_lost reports it
            return
        turn.record.finish(outcome, now, detail if turn.opening else f"{detail}: no connection was free")
        if turn.opening is not None:
            turn.opening.cancel()
        self._on_finished(turn.record)

    def _carry(self, turn: _Turn, connection: Connection) -> None:
        turn.connection = connection
        request, turn.request = turn.request, b""  # a finished turn may lie behind a slow one for long
        connection.send(turn.record, request)

    def _begin_opening(self, turn: _Turn) -> None:
        self._open += 1
        turn.opening = self._loop.create_task(self._connect(turn))

    async def _connect(self, turn: _Turn) -> None:
        began = time.monotonic_ns()
        connection = Connection(self._dialect, stream=self._stream, on_free=self._on_free, on_lost=self._on_lost)
        endpoint = self._endpoint
        try:
            await self._loop.create_connection(
                lambda: connection,
                endpoint.address,
                endpoint.port,
                ssl=endpoint.tls,
                server_hostname=endpoint.server_name if endpoint.tls else None,
            )
        except (OSError, asyncio.CancelledError) as error:
            if not connection.made:  # a cancelled attempt may have got through: on_lost counts that one
                self._leave()
            connection.close()
            self._fail_to_connect(turn, f"connect: {error}")
            self._serve_waiting()
            return
        turn.record.connecting = time.monotonic_ns() - began
        if turn.record.outcome is None and connection.alive:
            self._carry(turn, connection)
        else:
            connection.close()
            self._fail_to_connect(turn, "closed as soon as it was accepted")

    def _fail_to_connect(self, turn: _Turn, detail: str) -> None:
        if turn.record.outcome is None:
            turn.record.finish(Outcome.CONNECTION_FAILED, time.monotonic_ns(), detail)
            self._on_finished(turn.record)

    def _on_free(self, connection: Connection, record: Record) -> None:
        self._on_finished(record)
        if not self._keepalive:
            connection.close()
            return
        turn = self._next_waiting()
        if turn is None:
            self._idle.append(connection)
        else:
            self._carry(turn, connection)

    def _on_lost(self, connection: Connection, record: Record | None) -> None:
        self._leave()
        if record is not None:
            self._on_finished(record)
        else:
            self._idle = [idle for idle in self._idle if idle.alive]
        self._serve_waiting()

    def _leave(self) -> None:
        self._open -= 1
        if self._emptied is not None and not self._open:
            self._emptied.set()

    def _serve_waiting(self) -> None:
        while self._open < self._limit and (turn := self._next_waiting()) is not None:
            self._begin_opening(turn)

    def _next_waiting(self) -> _Turn | None:
        while self._waiting:
            turn = self._waiting.popleft()
            if turn.record.outcome is None:
                return turn
        return None
