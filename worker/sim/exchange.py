"""One request and the answer that goes back for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from tailrace.worker.sim.errors import Refusal
from tailrace.worker.sim.failures import Fault
from tailrace.worker.sim.heads import JSON

if TYPE_CHECKING:
    from tailrace.worker.sim.protocol import Connection

LAST_CHUNK = b"0\r\n\r\n"


@dataclass(slots=True)
class Request:
    """A request as read; header names in small letters, the last of a repeated header counts."""

    method: str
    path: str
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    keep_alive: bool = True


class Exchange:
    """Writes one answer; every method does nothing when the client is gone."""

    __slots__ = ("_connection", "_streaming", "faults", "on_gone", "on_over", "over", "request", "request_id")

    def __init__(self, connection: Connection, request: Request) -> None:
        self._connection = connection
        self._streaming = False
        self.request = request
        self.request_id = request.headers.get(b"x-request-id") or uuid4().hex.encode()
        self.faults: tuple[Fault, ...] = ()
        self.on_gone: Callable[[], None] | None = None
        """Called when the client leaves before the end."""
        self.on_over: Callable[[], None] | None = None
        """Called once, however it ended."""
        self.over = False

    @property
    def from_loopback(self) -> bool:
        """Whether the peer is this machine."""
        return self._connection.from_loopback

    @property
    def streaming(self) -> bool:
        """Whether a stream's head is out."""
        return self._streaming

    def answer_id(self, prefix: str) -> str:
        """The id of the answer: the client's own request id goes into it."""
        given = self.request.headers.get(b"x-request-id")
        return prefix + (given.decode("latin-1") if given else uuid4().hex[16:])

    def reply(
        self,
        status: int,
        body: bytes,
        content_type: bytes | None = JSON,
        *,
        extra: bytes = b"",
        vary: bool = True,
        named: bool = True,
        shown: int | None = None,
    ) -> None:
        """Send a whole answer; with `shown`, only so many bytes of its body."""
        if self.over:
            return
        heads, close = self._connection.heads, self._connection.closing(self.request)
        request_id = self.request_id if named else None
        head = heads.full(status, len(body), content_type, request_id, vary=vary, close=close, extra=extra)
        cut = next((fault for fault in self.faults if fault.fail == "cut"), None) if shown is None else None
        if cut is not None:
            # Of what takes no tokens, or fewer than the fault waited for.
            self._connection.write(head + body[: len(body) // 2])
            self.cut(rst=cut.rst)
            return
        self._connection.write(head + body[:shown])
        if shown is None:
            self._finish()

    def refuse(self, refusal: Refusal) -> None:
        """Send an error."""
        extra = b"" if refusal.retry_after is None else b"retry-after: %d\r\n" % max(1, round(refusal.retry_after))
        body = refusal.body(messages=self.request.path.startswith("/v1/messages"))
        self.reply(refusal.status, body, extra=extra, vary=not refusal.bare, named=not refusal.bare)

    def open_stream(self) -> None:
        """Send the head of an event stream."""
        if not self.over:
            self._streaming = True
            head = self._connection.heads.stream(self.request_id, close=self._connection.closing(self.request))
            self._connection.write(head)

    def write(self, framed: bytes) -> None:
        """Send bytes that are framed as chunks already."""
        if not self.over:
            self._connection.write(framed)

    def event(self, event: bytes) -> None:
        """Send one event as one chunk."""
        self.write(chunk(event))

    def end(self) -> None:
        """End the stream as it should."""
        if not self.over:
            self._connection.write(LAST_CHUNK)
            self._finish()

    def cut(self, *, rst: bool = False) -> None:
        """End the connection in the middle, after what was written, or with a reset."""
        if not self.over:
            self._close()
            self._connection.drop(rst=rst)

    def leave(self) -> None:
        """The client is gone."""
        if not self.over:
            gone = self.on_gone
            self._close()
            if gone is not None:
                gone()

    def _finish(self) -> None:
        self._close()
        self._connection.answered()

    def _close(self) -> None:
        self.over = True
        self.on_gone = None
        if self.on_over is not None:
            self.on_over()


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
