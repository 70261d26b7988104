"""One step of a rescue: the sink of what another worker is asked, whatever it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.proxy import answers
from tailrace.proxy.fault import Fault, bad_answer
from tailrace.proxy.sink import Sink
from tailrace.proxy.wire import ParsedHead, unframe

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.rescue.rescue import Rescue

_MOST_OF_AN_ERROR: Final = 64 * 1024


class Step(Sink):
    """Tells the rescue where the worker refuses; what it answers otherwise is for the kinds of steps."""

    generates = False
    """Whether an engine makes tokens for it."""

    def __init__(self, rescue: Rescue, attempt: Attempt) -> None:
        self._rescue = rescue
        self._attempt = attempt
        self._refused = False
        self._held: list[bytes] = []
        self._size = 0
        self.sent_ns = 0

    def fits(self, head: ParsedHead) -> bool:
        """Whether an answer with a good status is one to this step."""
        return True

    def on_head(self, head: ParsedHead) -> None:
        attempt = self._attempt
        attempt.head = head
        attempt.status = head.status
        if head.load and attempt.connection is not None:
            attempt.worker.standing.hear(head.load, attempt.connection.clock.now)
        self._refused = head.status != 200 or not self.fits(head)
        self._rescue.heard()

    def on_chunks(self, chunks: bytes, count: int) -> None:
        self.on_data(unframe(chunks))

    def on_data(self, data: bytes) -> None:
        if self._refused:
            self._keep(data, _MOST_OF_AN_ERROR)
        else:
            self.take(data)

    def _keep(self, data: bytes, most: int) -> None:
        self._size += len(data)
        if self._size <= most:
            self._held.append(data)

    def take(self, data: bytes) -> None:
        """Some of a good answer."""

    def on_end(self) -> None:
        if not self._refused:
            self.whole()
        elif self._attempt.status >= 400:
            body = b"".join(self._held)
            self._rescue.failed(answers.error_of(self._attempt, body, cut=self._size > len(body)))
        else:
            self._rescue.failed(bad_answer(f"a status {self._attempt.status} of another kind"))

    def whole(self) -> None:
        """A good answer ended where its framing said."""

    def on_fault(self, fault: Fault) -> None:
        self._rescue.failed(fault)

    def on_quiet(self, quiet: float, now: float) -> None:
        self._rescue.wait(now)

    def on_doubt(self, fault: Fault, lost: bool) -> None:
        self._rescue.doubted(fault)
