"""What a worker connection tells of the answer that it receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.wire import ParsedHead


class Sink:
    """Whoever the answer of one exchange is for. After `on_end` or `on_fault` nothing more is called."""

    def on_head(self, head: ParsedHead) -> None:
        """The answer's head."""

    def on_chunks(self, chunks: bytes, count: int) -> None:
        """Whole chunks with their framing: all that one read brought."""

    def on_data(self, data: bytes) -> None:
        """Payload bytes of an answer that is not chunked."""

    def on_end(self) -> None:
        """The answer ended where its framing said."""

    def on_fault(self, fault: Fault) -> None:
        """The exchange failed; the connection is closed."""

    def on_quiet(self, quiet: float, now: float) -> None:
        """Called a few times a second with the seconds since the last byte."""

    def on_doubt(self, fault: Fault, lost: bool) -> None:
        """The worker has fallen silent and may be gone, or is `lost`: whoever has a better place may go there."""

    @property
    def owes(self) -> bool:
        """Whether bytes are due: those of a stream that has begun and is being read."""
        return False
