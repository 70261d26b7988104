"""Answer heads, written in the order and letters of uvicorn under vLLM."""

from __future__ import annotations

from email.utils import formatdate

from tailrace.worker.sim.clock import Clock
from tailrace.worker.sim.errors import REASON

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
PROMETHEUS = b"text/plain; version=1.0.0; charset=utf-8"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Heads:
    """Builds heads; the date line is made once a second."""

    def __init__(self, clock: Clock, *, request_ids: bool) -> None:
        self._clock = clock
        self._request_ids = request_ids
        self._second = -1
        self._common = b""

    def _start(self, status: int) -> bytes:
        second = int(self._clock.wall())
        if second != self._second:
            self._second = second
            self._common = b"date: %b\r\nserver: uvicorn\r\n" % formatdate(second, usegmt=True).encode()
        return b"HTTP/1.1 %d %b\r\n%b" % (status, REASON.get(status, b""), self._common)

    def _end(self, request_id: bytes | None, *, vary: bool, close: bool) -> bytes:
        lines = b"vary: Origin\r\n" if vary else b""
        if request_id is not None and self._request_ids:
            lines += b"x-request-id: %b\r\n" % request_id
        return lines + b"connection: close\r\n" if close else lines

    def full(
        self,
        status: int,
        length: int,
        content_type: bytes | None,
        request_id: bytes | None,
        *,
        vary: bool = True,
        close: bool = False,
        extra: bytes = b"",
    ) -> bytes:
        """The head of an answer of known length; `extra` lines come before the length."""
        kind = b"content-type: %b\r\n" % content_type if content_type is not None else b""
        end = self._end(request_id, vary=vary, close=close)
        return b"%b%bcontent-length: %d\r\n%b%b\r\n" % (self._start(status), extra, length, kind, end)

    def stream(self, request_id: bytes, *, close: bool) -> bytes:
        """The head of an event stream."""
        end = self._end(request_id, vary=True, close=close)
        kind = b"content-type: text/event-stream; charset=utf-8\r\n"
        return b"%b%b%btransfer-encoding: chunked\r\n\r\n" % (self._start(200), kind, end)

    def not_http(self) -> bytes:
        """The whole answer to something that is not HTTP."""
        lines = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
        return self._start(400) + lines + b"Invalid HTTP request received."
