"""A stream whose worker may come back while another one is asked: whoever has something to show first has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.proxy.sink import Sink

if TYPE_CHECKING:
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.rescue.rescue import Rescue
    from tailrace.proxy.stream_relay import StreamRelay
    from tailrace.proxy.upstream import UpstreamConnection
    from tailrace.proxy.wire import ParsedHead


class Doubted(Sink):
    """In the place of the stream's own sink at the worker that fell silent, which is put back when that says something.

    `rescue` is what the relay had before: that worker may have been another one's heir itself.
    """

    def __init__(self, relay: StreamRelay, connection: UpstreamConnection, sink: Sink, rescue: Rescue | None) -> None:
        self._relay = relay
        self._connection = connection
        self._sink = sink
        self.rescue = rescue
        connection.sink = self

    def put_back(self) -> None:
        """The worker's next bytes are for whom they were for before."""
        if self._connection.sink is self:
            self._connection.sink = self._sink

    def on_head(self, head: ParsedHead) -> None:
        """Not called: the head came before the commit."""

    def on_chunks(self, chunks: bytes, count: int) -> None:
        self._relay.stays()
        self._sink.on_chunks(chunks, count)

    def on_data(self, data: bytes) -> None:
        self._relay.stays()
        self._sink.on_data(data)

    def on_end(self) -> None:
        self._relay.stays()
        self._sink.on_end()

    def on_fault(self, fault: Fault) -> None:
        self._sink.on_fault(fault)

    def on_quiet(self, quiet: float, now: float) -> None:
        self._sink.on_quiet(quiet, now)

    def on_doubt(self, fault: Fault, lost: bool) -> None:
        """Another worker is asked already."""

    @property
    def owes(self) -> bool:
        return self._sink.owes
