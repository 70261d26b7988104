"""What plugins see and change of an answer on its way: watches get bytes, edits get whole events, in answer order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.plugin import Edit, Watch
from tailrace.proxy.rename import Rename
from tailrace.proxy.sse import Event, Splitter

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head

Send = Callable[[bytes], None]


class Taps:
    """The taps of one answer. Watches that stand before an edit in answer order see what it has not changed yet."""

    __slots__ = ("_edits", "_splitter", "_watches")

    def __init__(self, taps: list[Watch | Edit]) -> None:
        self._edits: list[Edit] = []
        self._watches: list[Watch] = []
        for tap in taps:
            if isinstance(tap, Edit):
                self._edits.append(tap)
            else:
                self._watches.append(tap)
        self._splitter = Splitter()

    @classmethod
    def of(cls, call: Call, head: Head) -> Taps | None:
        """The core's own taps and those that plugins want, or None where there are none."""
        taps: list[Watch | Edit] = [] if call.harvest is None else [call.harvest]
        for on_stream in call.chain.pipeline.on_stream:
            tap = on_stream(call, head)
            if tap is not None:
                taps.append(tap)
        entry = call.entry
        if entry is not None and entry.rename:
            taps.append(Rename(orjson.dumps(entry.name)))
        return cls(taps) if taps else None

    def sender(self, send: Send) -> Send:
        """A function that takes raw stream bytes and sends what the taps make of them."""
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
                out(pieces)

        return edited

    def _through(self, events: list[Event], first: int = 0) -> bytes:
        for edit in self._edits[first:]:
            events = [out for event in events for out in edit.feed(event)]
        return b"".join([event.raw for event in events])

    def body(self, body: bytes) -> bytes:
        """A whole unary answer through every tap."""
        outcome = Outcome(Ending.COMPLETED, 200)
        for edit in self._edits:
            body = edit.body(body)
            edit.finish(outcome)
        for watch in self._watches:
            watch.feed(body)
            watch.finish(outcome)
        return body

    def finish(self, send: Send, outcome: Outcome) -> None:
        """Let every tap see the end, once; what edits held back is sent where the stream ended well.

        A tap that fails keeps no other from seeing the end; its exception is raised when all have.
        """
        held = b""
        failure: Exception | None = None
        try:
            held = self._through(self._splitter.finish())
        except Exception as error:
            failure = error
        for index, edit in enumerate(self._edits):
            try:
                held += self._through(list(edit.finish(outcome)), index + 1)
            except Exception as error:
                failure = error
        shown = held if outcome.ending is Ending.COMPLETED and failure is None else b""
        for watch in self._watches:
            try:
                if shown:
                    watch.feed(shown)
                watch.finish(outcome)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure
        if shown:
            send(shown)
