"""What plugins see and change of an answer on its way: watches get bytes, edits get whole events, in answer order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import orjson
from tailrace.proxy.fault import FAILURES
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.plugin import Edit, Watch
from tailrace.proxy.rename import Rename
from tailrace.proxy.sse import Event, Splitter, ends_event

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head

log: Final = logging.getLogger("tailrace")
Send = Callable[[bytes], None]


class Taps:
    """The taps of one answer. Watches that stand before an edit in answer order see what it has not changed yet.

    They are the call's from the first that opens, so that the end of the call is theirs too, whatever brings it about.
    """

    __slots__ = ("_edits", "_ended", "_heard_at", "_id", "_last", "_send", "_sent", "_splitter", "_watches")

    def __init__(self, call_id: str) -> None:
        self._id = call_id
        self._edits: list[Edit] = []
        self._watches: list[Watch] = []
        self._splitter = Splitter()
        self._send: Send | None = None
        self._ended = False
        self._last = b""
        self._sent = -1
        self._heard_at = 0.0

    @classmethod
    def of(cls, call: Call, head: Head) -> Taps | None:
        """The core's own taps and those that plugins want, or None where there are none."""
        call.taps = taps = cls(call.id)
        if call.harvest is not None:
            taps._add(call.harvest)
        for on_stream in call.chain.pipeline.on_stream:
            tap = on_stream(call, head)
            if tap is not None:
                taps._add(tap)
        entry = call.entry
        if entry is not None and entry.rename:
            taps._add(Rename(orjson.dumps(entry.name)))
        if not taps._edits and not taps._watches:
            call.taps = None
        return call.taps

    def _add(self, tap: Watch | Edit) -> None:
        if isinstance(tap, Edit):
            self._edits.append(tap)
        else:
            self._watches.append(tap)

    @property
    def need_whole(self) -> bool:
        """Whether any of them can do nothing with pieces of a unary answer."""
        return any(isinstance(edit, Rename) for edit in self._edits)

    def sender(self, send: Send) -> Send:
        """A function that takes raw stream bytes and sends what the taps make of them."""
        self._send = send
        watches, edits, splitter = self._watches, self._edits, self._splitter

        def watched(data: bytes) -> None:
            for watch in watches:
                watch.feed(data)
            send(data)

        if not edits:
            return watched
        out = watched if watches else send

        def edited(data: bytes) -> None:
            pieces = self._through(splitter.feed(data))
            if pieces:
                self._last = pieces
                out(pieces)

        return edited

    def between_events(self, received: bool) -> bool:
        """Whether the client stands between two events; `received` says it of what the taps got."""
        return ends_event(self._last) if self._edits and self._last else received or bool(self._edits)

    def silence(self, quiet: float, now: float, sent: int) -> float:
        """Seconds in which the client has heard nothing: `quiet`, those of the worker, or more where edits hold back.

        To be asked a few times a second with the bytes `sent` so far.
        """
        if not self._edits:
            return quiet
        if sent != self._sent:
            self._sent, self._heard_at = sent, now
        return now - self._heard_at

    def _through(self, events: list[Event], first: int = 0) -> bytes:
        for edit in self._edits[first:]:
            events = [out for event in events for out in edit.feed(event)]
        return b"".join([event.raw for event in events])

    def body(self, body: bytes, status: int) -> bytes:
        """A whole unary answer through every tap, and its end."""
        for edit in self._edits:
            body = edit.body(body)
        for watch in self._watches:
            watch.feed(body)
        self.finish(Outcome(Ending.COMPLETED, status))
        return body

    def close(self, outcome: Outcome) -> bool:
        """Let every tap see the end that has not; False where one fails."""
        try:
            self.finish(outcome)
        except FAILURES:
            log.exception("a tap failed at the end of request %s", self._id)
            return False
        return True

    def finish(self, outcome: Outcome) -> None:
        """Let every tap see the end, once; what edits held back is sent where a stream ended well.

        A tap that fails keeps no other from seeing the end; its exception is raised when all have.
        """
        if self._ended:
            return
        self._ended = True
        held = b""
        failure: BaseException | None = None
        try:
            held = self._through(self._splitter.finish())
        except FAILURES as error:
            failure = error
        for index, edit in enumerate(self._edits):
            try:
                held += self._through(list(edit.finish(outcome)), index + 1)
            except FAILURES as error:
                failure = error
        well = self._send is not None and outcome.ending is Ending.COMPLETED and failure is None
        shown = held if well else b""
        for watch in self._watches:
            try:
                if shown:
                    watch.feed(shown)
                watch.finish(outcome)
            except FAILURES as error:
                failure = error
        if failure is not None:
            raise failure
        if shown and self._send is not None:
            self._send(shown)
