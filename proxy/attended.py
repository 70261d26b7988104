"""What becomes of a client that is slow, silent or wrong: limits while it sends, refusals, and a patient close."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, cast

from tailrace.proxy import framing
from tailrace.proxy.answering import Answering
from tailrace.proxy.body import invalid
from tailrace.proxy.call import Call
from tailrace.proxy.errors import answer as error_answer
from tailrace.proxy.fault import Fault, Reject
from tailrace.proxy.head import RequestHead
from tailrace.proxy.intake import trailers_too_large
from tailrace.proxy.metrics.calls import UNPARSED
from tailrace.proxy.routes import Route

if TYPE_CHECKING:
    from tailrace.proxy.limits import Timeouts
    from tailrace.proxy.peer import Peer
    from tailrace.proxy.server import ClientConnection
    from tailrace.proxy.service import Service

_FRAMING: Final = 16
"""Bytes that may come with each of a body's; a chunk of one byte has five."""
_LINGER: Final = 2.0
"""How long a client may say nothing before a refused connection is closed,"""
_LINGER_AT_MOST: Final = 30.0
"""and how long what it says is thrown away."""


class Attended(Answering):
    """A connection that is looked at a few times a second; `_reading` is the call whose body arrives now."""

    __slots__ = (
        "_beyond",
        "_body_since",
        "_head_since",
        "_head_size",
        "_lingering",
        "_lingering_since",
        "_queue",
        "_reading",
        "_seen",
        "_spoken",
        "_unsent",
        "_url",
        "_weighed",
        "peer",
        "touched",
    )

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.peer: Peer = None  # type: ignore[assignment]
        self.touched = service.clock.now
        self._url = b""
        self._seen: list[bytes] = []
        self._spoken = 0
        self._head_size = 0
        self._head_since = 0.0
        self._body_since = 0.0
        self._beyond = 0
        self._weighed = 0
        self._queue: deque[Call] = deque()
        self._reading: Call | None = None
        self._unsent = 0
        self._lingering = False
        self._lingering_since = 0.0

    def _check_protocol(self) -> None:
        """Refuse a request whose target is followed by another protocol than HTTP: the parser takes two more for it.

        `_seen` are the reads that the head came in, `_spoken` is how far those before it reach there.
        """
        seen = self._seen[0] if len(self._seen) == 1 else b"".join(self._seen)
        self._spoken = seen.find(self._url + b" HTTP/", self._spoken) + 1
        if not self._spoken:
            raise invalid("Only HTTP is spoken here.")

    def _weigh(self, call: Call, read: int) -> None:
        """Refuse a body that comes with far more than itself: without end, trailers and extensions are no part of it.

        `read` are the bytes that came just now, 0 where the head was among them. Each byte of the body makes up for
        some of what comes with it, but pays for none that comes later.
        """
        beyond = self._beyond + read - _FRAMING * (call.size - self._weighed) if read else 0
        self._weighed = call.size
        self._beyond = max(0, beyond)
        limits = self.service.chain.limits
        if beyond > limits.head:
            self._refuse(trailers_too_large(limits).fault)

    def _refuse(self, fault: Fault) -> None:
        """Answer what never became a call, or one whose body turned out to be wrong, behind all that came before it."""
        call = self._reading
        self._reading = None
        if call is None and self.call is None and not self._queue:
            head, body = error_answer(fault, anthropic=self._anthropic, request_id=(call_id := self.service.next_id()))
            self.service.refused(fault)
            lines = framing.head_lines(head, call_id, self._anthropic)
            self.transport.write(lines + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
            self._linger()
            return
        self._lingering = True  # what the client sends from here on is not read
        self._head_size = 0
        if call is None:
            call = self._stand_in()
            self._queue.append(call)
        call.fail(fault)

    def _stand_in(self) -> Call:
        """A call that waits in place of what never became one, to fail when its turn comes."""
        route = Route("", UNPARSED, anthropic=self._anthropic)
        head = RequestHead("GET", "", b"", b"", [], "1.1")
        client = cast("ClientConnection", self)
        return Call(self.service.next_id(), self.service.chain.unguarded(), client, head, route, self.peer)

    @property
    def _anthropic(self) -> bool:
        return self._url.startswith(b"/v1/messages")

    def _linger(self) -> None:
        """Discard what the client still sends, so that it can read the answer before a reset; `visit` ends that."""
        self._closing = self._lingering = True
        self._lingering_since = self.touched = self.service.clock.now
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def visit(self, now: float) -> None:
        timeouts = self.service.chain.timeouts
        call = self.call
        waits = self.paused or call is None
        if waits and self._stalled(now, timeouts.client_write):
            self.transport.abort()
            return
        if not waits:
            self._unsent = 0  # what is left when the call is over begins to wait then
        if call is None:
            self._visit_idle(now, timeouts)
        elif not call.complete and self._reading is call:
            self._check_upload(call, now)
        else:
            self.touched = now  # a long answer is no silence of the client
            call.visit(now)

    def _stalled(self, now: float, limit: float) -> bool:
        """Whether the client has long taken nothing of what waits for it; whatever it takes counts as life."""
        left = self.transport.get_write_buffer_size()
        if left < self._unsent or not self._unsent:
            self.paused_at = now
        self._unsent = left
        return left > 0 and now - self.paused_at > limit

    def _visit_idle(self, now: float, timeouts: Timeouts) -> None:
        quiet = now - self.touched
        if self._lingering_since:
            if quiet > _LINGER or now - self._lingering_since > _LINGER_AT_MOST:
                self.transport.close()
        elif self._head_size:
            self._head_since = self._head_since or now
            if now - self._head_since > timeouts.client_head:
                self._refuse(Reject(408, "request_timeout", "The request's head did not arrive in time.").fault)
        elif quiet > timeouts.idle:
            self.transport.close()

    def _check_upload(self, call: Call, now: float) -> None:
        timeouts = self.service.chain.timeouts
        allowed = timeouts.client_body + call.size / timeouts.client_body_rate
        if now - self.touched > timeouts.client_body or now - self._body_since > allowed:
            self._refuse(Reject(408, "request_timeout", "The request's body did not arrive in time.").fault)
