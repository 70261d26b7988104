"""What another worker says behind the tokens so far: the sink of its stream, and the way into the one that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.proxy import answers
from tailrace.proxy.dialects import COMPLETIONS, Sign
from tailrace.proxy.fault import Fault, bad_answer, false_end
from tailrace.proxy.rescue.splice import Splice, Unlike
from tailrace.proxy.rescue.step import Step
from tailrace.proxy.sse import Event, Splitter
from tailrace.proxy.wire import EVENTS, ParsedHead

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.rescue.rescue import Rescue
    from tailrace.proxy.stream_relay import StreamRelay

_HOLD: Final = 64 * 1024
_LARGEST: Final = 1 << 20
_BYTES_OF_AN_ID: Final = 16


class Continuation(Step):
    """Held back until it has something to show; from then on its events go the way of the worker's that was lost.

    Its first event may repeat the `known` tokens that it goes on from.
    """

    generates = True

    def __init__(self, rescue: Rescue, relay: StreamRelay, attempt: Attempt, splice: Splice, known: int) -> None:
        super().__init__(rescue, attempt)
        self._relay = relay
        self._splice = splice
        self._splitter = Splitter(_LARGEST + known * _BYTES_OF_AN_ID)
        self.live = False
        """Whether the stream goes on."""

    def fits(self, head: ParsedHead) -> bool:
        return head.kind == EVENTS

    def take(self, data: bytes) -> None:
        for event in self._splitter.feed(data):
            if self._relay.rescue is not self._rescue or not self._take(event):
                return

    def _take(self, event: Event) -> bool:
        """Pass one event on; False where nothing more of this answer is wanted."""
        sign = COMPLETIONS.judge(event)
        broken = sign in (Sign.ERROR, Sign.ABORTED)
        if not self.live:
            if broken:
                self._give_back(_fault_of(self._attempt, event, sign))
                return False
            if sign is Sign.DONE or not event.data:
                return True
            if not isinstance(event.json(), dict):
                self._give_back(bad_answer("an event that is none"))
                return False
        try:
            out = event.raw if broken else self._splice.feed(event)
        except Unlike as unlike:
            self._attempt.release()
            self._rescue.hopeless(str(unlike))
            return False
        if not self.live:
            self._keep(out, _HOLD)
            # A token may have no text of its own: half a character, or one that is not shown.
            if sign is Sign.NOTHING and self._size <= _HOLD:
                return True
            held, self._held = self._held, []
            out = b"".join(held) if self._size <= _HOLD else b"".join(held) + out
            self.live = True
            self._rescue.goes_on()
        if out:
            self._relay.on_data(out)
        if self._splice.ended:
            self._attempt.release()
            self._relay.on_end()
            return False
        return True

    def _give_back(self, fault: Fault) -> None:
        self._attempt.release()
        self._rescue.failed(fault)

    def whole(self) -> None:
        if self.live:
            self._relay.on_end()
        else:
            self._rescue.failed(false_end("it ended without any content"))

    def on_fault(self, fault: Fault) -> None:
        if self.live:
            self._relay.on_fault(fault)
        else:
            super().on_fault(fault)

    def on_quiet(self, quiet: float, now: float) -> None:
        if self.live:
            self._relay.on_quiet(quiet, now)
        else:
            super().on_quiet(quiet, now)

    @property
    def owes(self) -> bool:
        return self.live and self._relay.owes

    def on_doubt(self, fault: Fault, lost: bool) -> None:
        if self.live:
            self._relay.on_doubt(fault, lost)
        else:
            super().on_doubt(fault, lost)


def _fault_of(attempt: Attempt, event: Event, sign: Sign) -> Fault:
    if sign is Sign.ERROR:
        return answers.error_event(attempt, event)
    return false_end("the engine aborted the request")
