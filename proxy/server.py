"""One client connection: requests in, answers out in order, and the moment the client leaves.

Pipelined requests wait for the answer before them. A client that closes either half of its connection is gone: whatever
runs for it is ended at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import httptools
from tailrace.proxy.address import tune
from tailrace.proxy.body import invalid
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
from tailrace.proxy.intake import head_too_large, without_offer
from tailrace.proxy.parsing import PIPELINE, Parsing
from tailrace.proxy.repeat import Repeat
from tailrace.proxy.serve import serve
from tailrace.proxy.stride import Stride
from tailrace.proxy.unheard import Unheard

if TYPE_CHECKING:
    from tailrace.proxy.door import Door
    from tailrace.proxy.proxy_protocol import Origin
    from tailrace.proxy.publication import Sharing
    from tailrace.proxy.service import Service
    from tailrace.proxy.sweep import Watched


class ClientConnection(Parsing):
    """A connection that one door accepted."""

    __slots__ = ("_advancing", "_lane", "_origin")

    def __init__(self, service: Service, door: Door, origin: Origin | None = None) -> None:
        super().__init__(service, door)
        self._origin = origin
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
        reading = self._reading
        if reading is None:
            begins = not self._head_size
            if begins and self._repeat is not None and self._take_repeated(data):
                return
            if begins and not data.strip(b"\r\n"):
                return  # empty lines before a request mean nothing, no sign of life either
            self._head_size += len(data)
        self.touched = self.service.clock.now
        if begins or reading is not None:
            self._seen.clear()
            self._spoken = 0
        self._seen.append(data)
        fault = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._stay(data[offer.args[0] :]):
                return
            fault = invalid("No other protocol is spoken here.").fault
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, Reject):
                raise
            fault = cause.fault
            if self._reading is None:
                self._refuse_head(fault)
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
        elif self._reading is not None:
            self._weigh(self._reading, len(data) if self._reading is reading else 0)
        elif self._head_size > self.service.chain.limits.head:
            self._refuse(head_too_large(self.service.chain.limits).fault)

    def _take_repeated(self, data: bytes) -> bool:
        """Serve a request whose head is that of the last one but for its length; False where `data` is none."""
        head, repeat = self._head, self._repeat
        assert head is not None
        assert repeat is not None
        body = repeat.body_of(data)
        if body is None or self._head_chain is not self.service.chain or len(self._queue) >= PIPELINE:
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

    def _stay(self, rest: bytes) -> bool:
        """Serve a request that offers to switch protocols as if it did not; the parser would stop behind its head.

        False where its head offers nothing: without an offer to take out, the parser would stop there for ever.
        """
        call = self._queue.pop()
        call.drop()
        if call.head.get(b"upgrade") is None:
            return False
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(without_offer(call.head, self._url, self._length, close=not call.keep_alive) + rest)
        return True

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        current = self.call
        if current is not None and current.sharing is not None and self._leaves_it_to_others(current.sharing):
            return
        if self._lane is not None:
            self._lane.discard(self)
        self._closing = self._lingering = self.gone = True
        for call in self._queue:
            call.drop()
        self._queue.clear()
        self._reading = None  # it stands in the queue or is served
        if current is not None:
            if self.relay is not None:
                current.stride.within(self.relay.client_left)
            if current.race is not None:
                current.race.cancel()
            current.stride.cancel()
        self.service.disconnected(self)

    def _leaves_it_to_others(self, sharing: Sharing) -> bool:
        """The client is gone: whether its call goes on for those who follow it."""
        if isinstance(self.transport, Unheard) or not sharing.outlives():
            return False
        self._closing = True
        self.transport = Unheard(self.loop, self.connection_lost)
        for call in self._queue:
            call.drop()
        self._queue.clear()
        self._reading = None
        if self.paused:
            self.resume_writing()
        return True

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._queue and self.call is None and not self._advancing:
            self._advance()

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
