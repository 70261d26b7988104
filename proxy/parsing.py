"""What the parser tells of a client's requests: heads that become calls, and bodies that they take in.

HTTP/1.0 and 1.1 with httptools (llhttp in strict mode).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import httptools
from tailrace.proxy.attended import Attended
from tailrace.proxy.body import invalid
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
from tailrace.proxy.head import HeaderList, RequestHead
from tailrace.proxy.intake import check_length, head_too_large, is_plain, read_head, target_too_long

if TYPE_CHECKING:
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.door import Door
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.repeat import Repeat
    from tailrace.proxy.routes import Route
    from tailrace.proxy.server import ClientConnection
    from tailrace.proxy.service import Service

PIPELINE: Final = 16
"""Requests of one connection that may wait for the answers before theirs."""


class Parsing(Attended):
    """A connection whose requests are being parsed; methods named `on_…` are what httptools calls while it is fed."""

    __slots__ = (
        "_head",
        "_head_chain",
        "_head_url",
        "_headers",
        "_in_body",
        "_length",
        "_parser",
        "_repeat",
        "_repeats",
        "_route",
        "_serving",
        "door",
    )

    def __init__(self, service: Service, door: Door) -> None:
        super().__init__(service)
        self.door = door
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

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._length = b""
        self._headers = []
        self._in_body = False
        if not self._head_size:
            self._head_size = 1  # of a request behind another one in the same read

    def on_url(self, url: bytes) -> None:
        """Some of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer."""
        if self._in_body:
            return  # a trailer: nothing behind a body may pass for a header, nor take memory
        if len(name) == 14 and name.lower() == b"content-length":
            # Kept apart: it differs where all else is the same, and the parser has checked that it came once.
            self._length = value
            try:
                check_length(value, self.service.chain.limits.body)
            except Reject:
                self._head = None  # so that the whole head is read, and refused then
        else:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Make a Call of a head; raises Reject where it is wrong, and `_refuse_head` is next."""
        limits = self.service.chain.limits
        self._head_size = 0
        self._head_since = 0.0
        if len(self._queue) >= PIPELINE:
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
        client = cast("ClientConnection", self)
        self._reading = call = Call(self.service.next_id(), self._serving, client, head, self._route, peer)
        if head.version == "1.0" or not parser.should_keep_alive():
            call.keep_alive = False
        self._in_body = True
        self._body_since = self.service.clock.now
        self._queue.append(call)

    def _read_head(self, chain: Chain) -> RequestHead:
        """Read a head that differs from the one before it on this connection."""
        if self._is_too_large(chain):
            raise head_too_large(chain.limits)
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise Reject(505, "version_unsupported", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
        method = self._parser.get_method().decode()
        head = read_head(method, self._url, self._headers, version, chain.forward_headers)
        self._route = route = chain.routes.find(method, head.path)
        if route.local is None and not is_plain(head.path):
            raise invalid("The request path is not in its normal form.")
        if route.local is not None and b"anthropic-version" in head.folded:
            self._route = replace(route, anthropic=True)  # both APIs have a list of models
        self._serving = chain if route.guarded else chain.unguarded()
        self._head, self._head_url, self._head_chain = head, self._url, chain
        if self._length:
            check_length(self._length, chain.limits.body)
        return head

    def _is_too_large(self, chain: Chain) -> bool:
        limits, headers = chain.limits, self._headers
        return len(headers) > limits.headers or sum([len(n) + len(v) + 4 for n, v in headers]) > limits.head

    def _refuse_head(self, fault: Fault) -> None:
        """Make a Call of a head that is whole but refused, for plugins to see its answer and to hear of its end.

        Where it could not be read, the call's path is `/` and its route leads nowhere. One that is too large is none.
        """
        if fault.status == 431 or self._is_too_large(self.service.chain):
            return
        chain, head = self._serving, self._head
        if head is None or head.headers is not self._headers:
            chain = self.service.chain
            method, version = self._parser.get_method().decode(), self._parser.get_http_version()
            head = RequestHead(method, "/", b"", b"/", self._headers, version)
            anthropic = self._anthropic or b"anthropic-version" in head.folded
            self._route = replace(chain.routes.find(method, ""), anthropic=anthropic)
            self._head = None
        peer = self.door.client_of(self.peer, head) if self.peer.trusted else self.peer
        client = cast("ClientConnection", self)
        self._reading = call = Call(self.service.next_id(), chain, client, head, self._route, peer)
        call.fail(fault)
        self._queue.append(call)

    def on_body(self, body: bytes) -> None:
        """Some of the body; raises Reject where it is too large."""
        call = self._reading
        if call is not None:
            call.take(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        call, self._reading = self._reading, None
        if call is not None:
            call.taken()
