"""One client connection: requests in, answers out in order, and the moment the client leaves.

HTTP/1.0 and 1.1 with httptools (llhttp in strict mode). Pipelined requests wait for the answer before them. A client
that closes either half of its connection is gone: whatever runs for it is ended at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

import httptools
from tailrace.proxy.address import tune
from tailrace.proxy.attended import Attended
from tailrace.proxy.body import invalid
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
from tailrace.proxy.head import HeaderList, RequestHead
from tailrace.proxy.intake import check_length, head_too_large, read_head, target_too_long, without_offer
from tailrace.proxy.repeat import Repeat
from tailrace.proxy.serve import serve
from tailrace.proxy.stride import Stride

if TYPE_CHECKING:
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.door import Door
    from tailrace.proxy.proxy_protocol import Origin
    from tailrace.proxy.routes import Route
    from tailrace.proxy.service import Service
    from tailrace.proxy.sweep import Watched

_PIPELINE: Final = 16


class ClientConnection(Attended):
    """A connection that one door accepted."""

    __slots__ = (
        "_advancing",
        "_head",
        "_head_chain",
        "_head_url",
        "_headers",
        "_in_body",
        "_lane",
        "_length",
        "_origin",
        "_parser",
        "_repeat",
        "_repeats",
        "_route",
        "_serving",
        "door",
    )

    def __init__(self, service: Service, door: Door, origin: Origin | None = None) -> None:
        super().__init__(service)
        self.door = door
        self._origin = origin
        self._parser = httptools.HttpRequestParser(self)
        self._headers: HeaderList = []
        self._in_body = False
        # The last head and what was found for it: most requests of a connection repeat it.
        self._head: RequestHead | None = None
        self._head_url = b""
        self._head_chain: Chain | None = None
        self._route: Route = None  # type: ignore[assignment]
        self._serving: Chain = None  # type: ignore[assignment]
        self._repeat: Repeat | None = None
        self._repeats = False
        self._length = b""
        self._advancing = False
        self._lane: set[Watched] | None = None

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.peer = self.door.peer_of(transport, self._origin)
        tune(transport.get_extra_info("socket"), self.service.chain.timeouts.unacknowledged)
        self._lane = self.service.sweep.add(self)
        self.service.connected(self)

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self.touched = self.service.clock.now
            return
        begins = False
        if self._reading is None:
            begins = not self._head_size
            if begins and self._repeat is not None and self._take_repeated(data):
                return
            if begins and not data.strip(b"\r\n"):
                return  # empty lines before a request mean nothing, no sign of life either
            self._head_size += len(data)
        self.touched = self.service.clock.now
        if begins or self._reading is not None:
            self._seen.clear()
            self._spoken = 0
        self._seen.append(data)
        fault = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._stay(data[offer.args[0] :])
            return
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, Reject):
                raise
            fault = cause.fault
        except httptools.HttpParserError:
            fault = invalid("The request is not valid HTTP/1.1.").fault
        if self._repeats:
            self._repeats = False
            self._repeat = Repeat.of(data) if begins else None
        if self._reading is not None or not self._head_size:
            self._seen.clear()
        if self._queue and self.call is None:
            self._advance()
        if fault is not None:
            self._refuse(fault)
        elif self._head_size > self.service.chain.limits.head and self._reading is None:
            self._refuse(head_too_large(self.service.chain.limits).fault)

    def _take_repeated(self, data: bytes) -> bool:
        """Serve a request whose head is that of the last one but for its length; False where `data` is none."""
        head, repeat = self._head, self._repeat
        assert head is not None
        assert repeat is not None
        body = repeat.body_of(data)
        if body is None or self._head_chain is not self.service.chain or len(self._queue) >= _PIPELINE:
            return False
        self.touched = self.service.clock.now
        size = len(body)
        memory = self.service.memory
        if size > self.service.chain.limits.body or memory.used + size > memory.limit:
            return False  # the ordinary way knows how to say so
        peer = self.peer
        if peer.trusted:
            peer = self.door.client_of(peer, head)
        call = Call(self.service.next_id(), self._serving, self, head, self._route, peer)
        memory.used += size
        call.size = size
        call.raw = body
        call.complete = True
        self._queue.append(call)
        if self.call is None:
            self._advance()
        return True

    def _stay(self, rest: bytes) -> None:
        """Serve a request that offers to switch protocols as if it did not; the parser would stop behind its head."""
        call = self._queue.pop()
        call.drop()
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(without_offer(call.head, self._url, self._length, close=not call.keep_alive) + rest)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lane is not None:
            self._lane.discard(self)
        self._closing = self._lingering = self.gone = True
        for call in self._queue:
            call.drop()
        self._queue.clear()
        current, self._reading = self.call, None  # one that is being read stands in the queue or is served
        if current is not None:
            if self.relay is not None:
                current.stride.within(self.relay.client_left)
            if current.race is not None:
                current.race.cancel()
            current.stride.cancel()
        self.service.disconnected(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._queue and self.call is None and not self._advancing:
            self._advance()

    # What httptools calls while it is fed.

    def on_message_begin(self) -> None:
        self._url = b""
        self._length = b""
        self._headers = []
        self._in_body = False
        if not self._head_size:
            self._head_size = 1  # of a request behind another one in the same read

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer: nothing behind a body may pass for a header, nor take memory
        if len(name) == 14 and name.lower() == b"content-length":
            # Kept apart: it differs where all else is the same, and the parser has checked that it came once.
            check_length(value, self.service.chain.limits.body)
            self._length = value
        else:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        limits = self.service.chain.limits
        self._head_size = 0
        self._head_since = 0.0
        if len(self._queue) >= _PIPELINE:
            raise Reject(429, "too_many_pipelined", "Too many requests wait on this connection.")
        if len(self._url) > limits.target:
            raise target_too_long(limits)
        self._check_protocol()
        chain = self.service.chain
        parser = self._parser
        head = self._head
        if (
            (
                head is None
                or head.headers != self._headers
                or self._head_url != self._url
                or self._head_chain is not chain
            )
            or head.method != parser.get_method().decode()
            or head.version != parser.get_http_version()
        ):
            head = self._read_head(chain)
            self._repeat = None
        elif self._repeat is None and self._length and head.version == "1.1" and not head.expects_continue:
            self._repeats = parser.should_keep_alive()
        peer = self.peer
        if peer.trusted:
            peer = self.door.client_of(peer, head)
        self._reading = call = Call(self.service.next_id(), self._serving, self, head, self._route, peer)
        if head.version == "1.0" or not parser.should_keep_alive():
            call.keep_alive = False
        self._in_body = True
        self._body_since = self.service.clock.now
        self._queue.append(call)

    def _read_head(self, chain: Chain) -> RequestHead:
        """Read a head that differs from the one before it on this connection."""
        limits, headers = chain.limits, self._headers
        if len(headers) > limits.headers or sum([len(n) + len(v) + 4 for n, v in headers]) > limits.head:
            raise head_too_large(limits)
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise Reject(505, "version_unsupported", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
        method = self._parser.get_method().decode()
        head = read_head(method, self._url, self._headers, version, chain.forward_headers)
        self._route = chain.routes.find(method, head.path)
        self._serving = chain if self._route.guarded else chain.unguarded()
        self._head, self._head_url, self._head_chain = head, self._url, chain
        return head

    def on_body(self, body: bytes) -> None:
        call = self._reading
        if call is not None:
            call.take(body)

    def on_message_complete(self) -> None:
        call, self._reading = self._reading, None
        if call is not None:
            call.taken()

    @property
    def quiet(self) -> bool:
        """Whether nothing has arrived that waits for an answer."""
        return self.call is None and self._reading is None and not self._head_size and not self._lingering

    # The call's side.

    def _advance(self) -> None:
        """Serve waiting requests, one after the other, until one takes its time or the client takes no answers."""
        self._advancing = True
        while self._queue and self.call is None and not self._closing and not self.paused:
            self.call = call = self._queue.popleft()
            self.started = False
            self.chunked = call.head.version == "1.1"
            self.service.began()
            # Not the context of this moment: it may be that of the call before.
            call.stride = stride = Stride(serve(call), self.loop, self.service.context.copy())
            stride.resume()
        self._advancing = False

    def finished(self, call: Call) -> None:
        """The call is over: go on with the next request, or close."""
        self.call = None
        if not call.complete and not self._lingering_since and not self.gone:
            self._linger()
        elif self._closing:
            self.close()
        elif self._queue and not self._advancing:
            # Its client has heard nothing of this call because of the one before it, which is no silence.
            self._queue[0].beaten_at = self.service.clock.now
            self._advance()
