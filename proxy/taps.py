"""What plugins see and change of an answer on its way: watches get bytes, edits get whole events, in answer order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeGuard, cast

import orjson
from tailrace.proxy.fault import FAILURES, INTERNAL, Failed, Reject
from tailrace.proxy.mishap import go_on_without, note
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.plugin import Edit, Watch
from tailrace.proxy.rename import Rename
from tailrace.proxy.sse import Event, Splitter, ends_event

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head
    from tailrace.proxy.pipeline import Link

log: Final = logging.getLogger("tailrace")
Send = Callable[[bytes], None]


class Taps:
    """The taps of one answer. Watches that stand before an edit in answer order see what it has not changed yet.

    They are the call's from the first that opens, so that the end of the call is theirs too, whatever brings it about.
    """

    __slots__ = (
        "_call",
        "_edits",
        "_ended",
        "_heard_at",
        "_last",
        "_of_edits",
        "_of_watches",
        "_send",
        "_sent",
        "_splitter",
        "_watches",
    )

    def __init__(self, call: Call) -> None:
        self._call = call
        self._edits: list[Edit] = []
        self._watches: list[Watch] = []
        # Whose they are, None for the core's own.
        self._of_edits: list[Link | None] = []
        self._of_watches: list[Link | None] = []
        self._splitter = Splitter()
        self._send: Send | None = None
        self._ended = False
        self._last = b""
        self._sent = -1
        self._heard_at = 0.0

    @classmethod
    def of(cls, call: Call, head: Head, *, whole: bool = False) -> Taps | None:
        """The core's own taps and those that plugins want, or None where there are none.

        Of a `whole` answer, or one of its own, the core needs no tap for what plugins need of engines.
        """
        pipeline = call.chain.pipeline
        entry = call.entry
        renames = entry is not None and entry.rename
        if not pipeline.on_stream and not renames and (whole or call.harvest is None):
            return None
        taps: Taps | None = None
        call.taps = None
        if call.harvest is not None and not whole:
            taps = cls._opened(call)
            taps._edits.append(call.harvest)
            taps._of_edits.append(None)
        for on_stream in pipeline.on_stream:
            try:
                tap = on_stream(call, head)
                if tap is not None:
                    taps = cls._opened(call)
                    taps._add(tap, pipeline.owners[on_stream])
            except FAILURES as error:
                go_on_without(call, pipeline.owners[on_stream], "on_stream", error)
        if entry is not None and renames:
            taps = cls._opened(call)
            taps._add(Rename(orjson.dumps(entry.name)), None)
        return taps

    @classmethod
    def _opened(cls, call: Call) -> Taps:
        """Those of a call, made for the first: most answers that are no stream have none."""
        taps = call.taps
        if taps is None:
            call.taps = taps = cls(call)
        return taps

    def _add(self, tap: Watch | Edit, link: Link | None) -> None:
        if _edits(tap):
            self._edits.append(tap)
            self._of_edits.append(link)
        else:
            self._watches.append(cast("Watch", tap))
            self._of_watches.append(link)

    @property
    def lean(self) -> bool:
        """Whether nobody but the core wants something of the events, and nothing that is in every one."""
        harvest = self._call.harvest
        return not self._watches and len(self._edits) == 1 and self._edits[0] is harvest and not harvest.takes_ids

    @property
    def need_whole(self) -> bool:
        """Whether any of them can do nothing with pieces of a unary answer."""
        return any(isinstance(edit, Rename) for edit in self._edits)

    def sender(self, send: Send) -> Send:
        """A function that takes raw stream bytes and sends what the taps make of them."""
        self._send = send
        watches, edits = self._watches, self._edits

        def watched(data: bytes) -> None:
            for watch in watches:
                try:
                    watch.feed(data)
                except FAILURES as error:
                    self._watch_failed(watch, error)
            send(data)

        if not edits:
            return watched
        out = watched if watches else send

        def edited(data: bytes) -> None:
            pieces = self._through(self._splitter.feed(data))
            if pieces:
                self._last = pieces
                out(pieces)

        return edited

    def drop_open(self) -> None:
        """Forget the event that stands open: its worker is lost, and another one begins with a whole one."""
        self._splitter = Splitter()

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
        edits = self._edits
        index = first
        try:
            while index < len(edits):
                edit = edits[index]
                events = [out for event in events for out in edit.feed(event)]
                index += 1
            return b"".join([event.raw for event in events])
        except FAILURES as error:
            # What an edit gave that is no event fails in the next one, or behind the last.
            if index == len(edits) or (index > first and not all(isinstance(event, Event) for event in events)):
                index -= 1
            raise self._edit_failed(index, "feed", error) from error

    def _edit_failed(self, index: int, method: str, error: BaseException) -> BaseException:
        """What a failure of an edit is raised as: without it the answer would not be what it has to be."""
        link = self._of_edits[index]
        if link is None or isinstance(error, Reject | Failed):
            return error
        note(self._call, link.name, f"tap.{method}", error)
        return Failed(INTERNAL)

    def _watch_failed(self, watch: Watch, error: BaseException) -> None:
        """Go on without a watch where its plugin is not needed: it hears no more but the end."""
        place = next(index for index, other in enumerate(self._watches) if other is watch)
        link = self._of_watches[place]
        if link is None:
            raise error
        go_on_without(self._call, link, "tap.feed", error)
        self._watches[place] = Deaf(watch)

    def body(self, body: bytes, status: int) -> bytes:
        """A whole unary answer through every tap, and its end."""
        for index, edit in enumerate(self._edits):
            try:
                body = edit.body(body)
                if not isinstance(body, bytes):
                    raise TypeError(f"body must return bytes, not {type(body).__name__}")
            except FAILURES as error:
                raise self._edit_failed(index, "body", error) from error
        for watch in self._watches:
            try:
                watch.feed(body)
            except FAILURES as error:
                self._watch_failed(watch, error)
        self.finish(Outcome(Ending.COMPLETED, status))
        return body

    def close(self, outcome: Outcome) -> bool:
        """Let every tap see the end that has not; False where one fails."""
        try:
            self.finish(outcome)
        except FAILURES as error:
            if not isinstance(error, Reject | Failed):
                log.exception("a tap failed at the end of request %s", self._call.id)
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
                rest = list(edit.finish(outcome))
            except FAILURES as error:
                failure = self._edit_failed(index, "finish", error)
                continue
            try:
                held += self._through(rest, index + 1)
            except FAILURES as error:
                failure = error
        well = self._send is not None and outcome.ending is Ending.COMPLETED and failure is None
        shown = held if well else b""
        for watch, link in zip(self._watches, self._of_watches, strict=True):
            try:
                if shown:
                    watch.feed(shown)
                watch.finish(outcome)
            except FAILURES as error:
                failure = self._unless_open(link, error) or failure
        if failure is not None:
            raise failure
        if shown and self._send is not None:
            self._send(shown)

    def _unless_open(self, link: Link | None, error: BaseException) -> BaseException | None:
        """What a watch's failure at the end is raised as, None where that does not matter."""
        if link is None:
            return error
        try:
            go_on_without(self._call, link, "tap.finish", error)
        except FAILURES as failure:
            return failure
        return None


def _edits(tap: Watch | Edit) -> TypeGuard[Edit]:
    """Whether a tap changes things; asking the protocol itself takes longer than all else that a call needs of it."""
    return getattr(tap, "body", None) is not None


class Deaf:
    """In the place of a watch that failed, which only hears of the end."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def feed(self, data: bytes) -> None:
        """Nothing more is told."""

    def finish(self, outcome: Outcome) -> None:
        """Called exactly once, as for every watch."""
        self._watch.finish(outcome)
