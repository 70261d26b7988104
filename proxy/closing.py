"""How near a stream is to its end: what it owes still, whether its terminal event came, and who holds that back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.proxy.ending import LastBytes
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.owed import SILENCE, USAGE, Owed

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.sse import Event

GRACE: Final = 1.0
"""Seconds that the end of the framing may take behind the terminal event."""


class Closing:
    """The last part of one stream's life; `open_event` in its methods is the size of the event that stands open."""

    __slots__ = ("_asked", "_attempt", "_done_at", "_last", "_owed", "_then", "holding", "terminal", "unpaid")

    def __init__(self, attempt: Attempt, then: Callable[[bytes], None]) -> None:
        self._attempt = attempt
        self._then = then
        self._owed: Owed | None = None
        self._done_at = 0.0
        self._asked = False
        self.terminal = False
        self.unpaid = False
        """Whether usage is due that was asked for."""
        self.holding = False
        """Whether a plugin holds back the last bytes."""
        self._last = b""

    def note(self, event: Event, *, finish: bool) -> None:
        """One event from the first finish reason on."""
        owed = self._owed
        if owed is None:
            owed = self._owed = Owed(self._attempt)
        owed.note(event, finish=finish)
        self.unpaid = owed.usage

    def end(self) -> None:
        """The terminal event is there: what remains is the end of the framing."""
        self.terminal = True
        self._done_at = self._attempt.call.client.service.clock.now

    def finished(self, open_event: int) -> bool:
        """Whether every choice has ended with a reason, and no event stands open."""
        return self._owed is not None and self._owed.finished and not open_event

    @property
    def reasoned(self) -> bool:
        """Whether one choice at least has ended with a reason."""
        return self._owed is not None

    def missing(self, open_event: int) -> str | None:
        """What a stream that is over lacks, None where it is whole."""
        if self.terminal:
            return None
        if self.finished(open_event):
            return USAGE if self.unpaid else None
        return "a finish reason"

    def overdue(self, open_event: int, quiet: float, now: float) -> bool:
        """Whether a whole stream's worker is not waited for any longer."""
        if self.holding:
            self._done_at = now  # whoever holds the end has a limit of its own
            return False
        if self.terminal:
            return now - self._done_at > GRACE
        return self.finished(open_event) and not self.unpaid and quiet > SILENCE

    def holds(self, last: bytes) -> bool:
        """Ask plugins, once, whether the last bytes may leave; those that are held are handed to `then` later."""
        call = self._attempt.call
        if self._asked or not call.chain.pipeline.on_ending:
            return False
        if call.harvest is not None and last:
            call.harvest.foresee(last)
        self._asked = True
        self._last = last
        self.holding = True
        call.stride.within(self._ask, LastBytes(call, self._released))
        return self.holding

    def _ask(self, last: LastBytes) -> None:
        held = False
        outcome = Outcome(Ending.COMPLETED, self._attempt.status)
        client = self._attempt.call.client
        outcome.delivered_bytes = client.sent + (client.relay.passed if client.relay is not None else 0)
        try:
            held = last.held(outcome)
        finally:
            self.holding = held

    def forget(self) -> None:
        """The stream is over: nobody wants its last bytes any more."""
        self._then = nowhere

    def _released(self) -> None:
        if self.holding:
            self.holding = False
            self._then(self._last)


def nowhere(data: bytes) -> None:
    """Where bytes go of a stream that is over."""
