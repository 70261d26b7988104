"""One try at one worker, from the choice of the worker until its answer may be shown: the commit.

Until then everything the worker sends is held back, within bounds, so that another worker can still be asked. The
commit is the first content of a stream, a whole unary body, or a held-back part that outgrew its bound.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from tailrace.proxy import answers, sending
from tailrace.proxy.dialects import Sign
from tailrace.proxy.fault import FAILURES, INTERNAL, Fault, bad_answer, false_end, timed_out
from tailrace.proxy.mishap import go_on_without
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.owed import SILENCE, USAGE, Owed
from tailrace.proxy.plugin import Verdict
from tailrace.proxy.sink import Sink
from tailrace.proxy.sse import Event, Splitter
from tailrace.proxy.standing import UNSENT
from tailrace.proxy.wire import EVENTS, ParsedHead, unframe

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import ModelEntry, Worker
    from tailrace.proxy.race import Race
    from tailrace.proxy.upstream import UpstreamConnection

log: Final = logging.getLogger("tailrace")
HOLD_STREAM: Final = 64 * 1024
HOLD_ERROR: Final = 64 * 1024
_BYTES_OF_AN_ID: Final = 8
"""A token of the prompt, one byte at least, comes back as a number, where its ids are asked for."""


class Attempt(Sink):
    """The sink of one exchange until the relay takes over; ends exactly once."""

    # Class attributes are the defaults: most attempts set few of them, and setting them all is what costs.
    connection: UpstreamConnection | None = None
    opening: Callable[[], object] | None = None
    status = 0
    head: ParsedHead
    streaming = False
    framed = False
    refused = False
    held_bytes = 0
    ended = False
    unasked = False
    """Whether what plugins ask of engines is left out, because its worker refuses it, or may."""
    fault: Fault | None = None
    end: AttemptEnd | None = None
    heir: Sink | None = None
    """Whoever the answer is for in its place."""
    first_content_ns = 0
    ended_ns = 0
    """When it ended, where that was before the end of its call."""
    _events: list[Event] | None = None
    _shows = False
    _owed: Owed | None = None
    _splitter: Splitter | None = None
    __deletable__ = ("call", "race")

    def __init__(self, race: Race, call: Call, entry: ModelEntry, worker: Worker, number: int, why: str) -> None:
        self.race = race
        self.call = call
        self.entry = entry
        self.worker = worker
        self.number = number
        self.why = why
        self.held: list[bytes] = []
        self.started_ns = monotonic_ns()
        self.sent_ns = 0
        self._hold = 0
        self._prompt_bytes = 0
        self._sent_at = 0.0

    def begin(self, *, fresh: bool) -> None:
        """Send the request over a resting connection or, where there is none or `fresh` is asked, a new one."""
        pool = self.worker.connections
        connection = None if fresh else pool.take()
        if connection is not None:
            self._send(connection)
        else:
            self.opening = pool.connect(self._opened, self._lose, self.on_doubt).cancel

    def _opened(self, connection: UpstreamConnection) -> None:
        try:
            self._send(connection)
        except FAILURES:
            log.exception("request %s could not be built", self.call.id)
            connection.close()
            self._lose(INTERNAL)

    def _send(self, connection: UpstreamConnection) -> None:
        self.opening = None
        self.connection = connection
        call = self.call
        head, body = sending.request(call, self)
        self._prompt_bytes = len(body)
        self._sent_at = connection.clock.now
        self.sent_ns = self.worker.last_sent_ns = monotonic_ns()
        if call.body is None:
            connection.manner = sending.manner(call)
        pipeline = call.chain.pipeline
        connection.stride = call.stride if pipeline.judge or pipeline.on_stream else None
        connection.send(self, head, body)

    def untie(self) -> None:
        """The call is over: it is freed at once, and not by the collector, where nothing refers back to it."""
        self.heir = None
        del self.call
        del self.race

    def release(self) -> None:
        """Close what this attempt has open; nothing is heard from it afterwards."""
        if self.opening is not None:
            self.opening()
            self.opening = None
        connection = self.connection
        if connection is not None and (connection.sink is self or (self.heir and connection.sink is self.heir)):
            connection.release()

    def _lose(self, fault: Fault) -> None:
        if self.race.winner is self:
            self.fault = fault
            return
        self.release()
        self.race.failed(self, fault)

    # The sink of the exchange.

    def on_head(self, head: ParsedHead) -> None:
        self.head = head
        self.status = status = head.status
        if head.load and self.connection is not None:
            self.worker.standing.hear(head.load, self.connection.clock.now)
        if status >= 400 and (self.call.route.entry is None or UNSENT in head.load):
            self.refused = True
            self._hold = HOLD_ERROR
        elif head.kind == EVENTS and self.call.route.dialect is not None and self.call.head.method != "HEAD":
            self.streaming = True
            self._hold = HOLD_STREAM
            if self.call.trail is not None:
                self._hold += self._prompt_bytes * _BYTES_OF_AN_ID
            self._splitter = Splitter(self._hold)
        else:
            self._hold = self.call.chain.hold_unary
            if self.call.route.entry is not None and head.length < 0 and answers.passes_at_once(self.call):
                self._commit()

    def on_chunks(self, chunks: bytes, count: int) -> None:
        if self.streaming:
            self.framed = True
            self.held.append(chunks)
            self.held_bytes += len(chunks)
            if self.race.winner is not self:
                self._read_events(unframe(chunks))
        else:
            self.on_data(unframe(chunks))

    def on_data(self, data: bytes) -> None:
        self.held.append(data)
        self.held_bytes += len(data)
        if self.race.winner is self:
            return
        if self.streaming:
            self._read_events(data)
        elif self.held_bytes > self._hold:
            if self.refused:
                self._lose(answers.error_of(self, b"".join(self.held)[:HOLD_ERROR], cut=True))
            elif why := answers.wrong_head(self):
                self._lose(bad_answer(why))
            else:
                self._commit()

    def _read_events(self, data: bytes) -> None:
        splitter, dialect = self._splitter, self.call.route.dialect
        assert splitter is not None
        assert dialect is not None
        for event in splitter.feed(data):
            sign = dialect.judge(event)
            if sign is Sign.ERROR:
                self._lose(answers.error_event(self, event))
                return
            if sign is Sign.ABORTED:
                self._lose(false_end("the engine aborted the request"))
                return
            if sign is Sign.DONE and not dialect.conclusive and self._owed is None:
                self._lose(false_end(f"it ended without {self._missing}"))
                return
            if self.call.chain.pipeline.judge:
                if self._events is None:
                    self._events = []
                self._events.append(event)
                verdict = self._verdict(sign, self._events)
                if verdict is Verdict.NEXT:
                    self._lose(false_end("a policy refused how it began"))
                    return
                if verdict is Verdict.WAIT and sign is not Sign.DONE:
                    self._note(event, sign)
                    continue
            elif sign is Sign.NOTHING:
                continue
            self._commit()
            return
        if self.held_bytes > self._hold:
            self._commit()

    def _verdict(self, sign: Sign, events: list[Event]) -> Verdict:
        verdict = Verdict.COMMIT if sign is not Sign.NOTHING else Verdict.WAIT
        pipeline = self.call.chain.pipeline
        for judge in pipeline.judge:
            try:
                said = judge(self.call, self, events)
            except FAILURES as error:
                go_on_without(self.call, pipeline.owners[judge], "judge", error)
                continue
            if said is Verdict.NEXT:
                return said
            if said is Verdict.WAIT:
                verdict = said
        return verdict

    def _note(self, event: Event, sign: Sign) -> None:
        """Keep account of what a policy holds back: at a proper end there is nothing left to wait for."""
        if sign is not Sign.NOTHING:
            self._shows = True
        if sign is Sign.FINISH and self._owed is None:
            self._owed = Owed(self)
        if self._owed is not None:
            self._owed.note(event, finish=sign is Sign.FINISH)

    @property
    def _finished(self) -> bool:
        return self._owed is not None and self._owed.finished

    @property
    def _missing(self) -> str | None:
        """What keeps a stream that is over from being whole."""
        if self._finished:
            return USAGE if self._owed is not None and self._owed.usage else None
        return "a finish reason" if self._shows else "any content"

    def _commit(self) -> None:
        self.first_content_ns = monotonic_ns()
        self.race.committed(self)

    def on_end(self) -> None:
        self.ended = True
        if self.race.winner is self:
            return
        if self.refused:
            self._lose(answers.error_of(self, b"".join(self.held)))
        elif self.streaming:
            missing = self._missing
            if missing is None:
                self._commit()
            else:
                self._lose(false_end(f"it ended without {missing}"))
        elif why := answers.no_answer(self):
            self._lose(bad_answer(why))
        else:
            self._commit()

    def on_fault(self, fault: Fault) -> None:
        self._lose(fault)

    def on_doubt(self, fault: Fault, lost: bool) -> None:
        self.race.move(self, fault)

    def on_quiet(self, quiet: float, now: float) -> None:
        if self.race.winner is self:
            return
        if self._finished and quiet > SILENCE:
            self._commit()
            return
        timeouts = self.call.chain.timeouts
        streams = self.streaming or self.call.stream
        limit = timeouts.first_content(self._prompt_bytes) if streams else timeouts.unary
        if now - self._sent_at > limit:
            self._lose(timed_out("first_content" if streams else "unary", limit))
