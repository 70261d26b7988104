"""A stream from worker to client: bytes go on as they come, in both kinds of framing, with backpressure.

A plain stream is not parsed. Each read is looked at for three facts only: does it end at an event boundary, may it
hold a terminal event, may it hold an error. Where one of the dialect's needles occurs, the whole events around it are
judged exactly. Bound per stream: the client's write buffer (64 KiB) and one read of the kernel (256 KiB).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.proxy import answers
from tailrace.proxy.dialects import Sign
from tailrace.proxy.errors import event as error_event
from tailrace.proxy.fault import FAILURES, INTERNAL, Failed, Fault, Reject, Whose, false_end, fault_of, timed_out
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.owed import SILENCE, USAGE, Owed
from tailrace.proxy.pattern import Pattern
from tailrace.proxy.signal import Signal
from tailrace.proxy.sink import Sink
from tailrace.proxy.sse import Event, Splitter
from tailrace.proxy.taps import Taps
from tailrace.proxy.wire import ParsedHead, unframe

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call

log: Final = logging.getLogger("tailrace")
TAIL: Final = 4 << 20  # of an event that is not whole yet, so that it can be judged when it is
LESSONS: Final = 4
"""How often a stream's pattern is learnt: the first chunks of a stream are unlike the rest."""
GRACE: Final = 1.0


class StreamRelay(Sink):
    """The sink of the winning exchange once it is shown; resolves `done` exactly once."""

    __slots__ = (
        "_attempt",
        "_client",
        "_dialect",
        "_done_at",
        "_gap",
        "_lessons",
        "_owed",
        "_passed",
        "_pattern",
        "_plain",
        "_raw",
        "_send",
        "_sse",
        "_tail",
        "_taps",
        "_terminal",
        "_unpaid",
        "_write",
        "call",
        "done",
    )

    def __init__(self, call: Call, attempt: Attempt, taps: Taps | None) -> None:
        self.call = call
        self._attempt = attempt
        self._client = call.client
        self._send = call.client.send if taps is None else taps.sender(call.client.send)
        self._raw = self._plain = False
        self._write: Callable[[bytes], None] = call.client.send_chunks
        self._taps = taps
        self.done: Signal[Outcome] = Signal()
        self._sse = attempt.streaming
        self._tail = b""
        self._passed = 0
        self._pattern: Pattern | None = None
        self._lessons = LESSONS
        self._owed: Owed | None = None
        self._unpaid = False
        self._terminal = False
        self._done_at = 0.0
        self._gap = call.chain.timeouts.gap
        self._dialect = call.route.dialect

    def attach(self) -> None:
        """Take over the exchange, with what the attempt has held back so far."""
        attempt, client = self._attempt, self._client
        client.relay = self
        self._raw = self._plain = self._sse and self._taps is None and client.passes_chunks
        connection = attempt.connection
        if connection is not None and connection.sink is attempt:
            connection.sink = self
            client.upstream = connection.transport
            if client.paused and connection.transport is not None:
                connection.transport.pause_reading()
        held = attempt.held
        attempt.held = []
        if held:
            try:
                data = held[0] if len(held) == 1 else b"".join(held)
                if attempt.framed:
                    self.on_chunks(data, 2)
                else:
                    self.on_data(data)
            except FAILURES as error:
                if not isinstance(error, Reject | Failed):
                    log.exception("the answer to request %s could not be relayed", self.call.id)
                self._fail(fault_of(error))
                return
        if client.head_sent:
            self._write = client.transport.write
        if attempt.ended:
            self.on_end()
        elif attempt.fault is not None:
            self.on_fault(attempt.fault)

    @property
    def at_boundary(self) -> bool:
        """Whether bytes of the gateway's own would land between two events."""
        between = not self._tail if self._taps is None else self._taps.between_events(not self._tail)
        return self._sse and between and not self._terminal

    def on_head(self, head: ParsedHead) -> None:
        """Not called: the head came before the commit."""

    def on_chunks(self, chunks: bytes, count: int) -> None:
        # The usual read goes on as it came.
        if self._plain and self._is_plain(chunks, count):
            self._passed += len(chunks)
            self._write(chunks)
        else:
            self.on_data(unframe(chunks))

    def _is_plain(self, chunks: bytes, count: int) -> bool:
        """Whether these chunks are whole events in which nothing is to be looked for."""
        if count > 1:
            data = unframe(chunks)
            return data.endswith(b"\n\n") and not self._needs_look(data)
        pattern = self._pattern
        if pattern is not None and pattern.fits(chunks):
            return True
        if not chunks.endswith(b"\n\n\r\n") or self._needs_look(chunks):
            return False
        if self._lessons:
            self._lessons -= 1
            self._pattern = None if self._dialect is None else Pattern.of(chunks, self._dialect.mark)
        return True

    def _needs_look(self, data: bytes) -> bool:
        return self._terminal or (self._dialect is not None and not self._dialect.silent(data))

    def on_data(self, data: bytes) -> None:
        if not self._sse:
            self._send(data)
            return
        tail = self._tail
        whole = tail + data if tail else data
        if self._unpaid or self._needs_look(whole):
            if not self._inspect(whole, len(tail)):
                return
        else:
            self._send(data)
        if whole.endswith(b"\n\n"):
            self._tail = b""
        else:
            splitter = Splitter(TAIL)
            splitter.feed(whole)
            rest = splitter.rest
            # A line feed behind its carriage return opens no event.
            self._tail = rest[-TAIL:] if rest.strip(b"\r\n") else b""
        self._plain = self._raw and not self._tail and not self._unpaid

    def _inspect(self, whole: bytes, shown: int) -> bool:
        """Judge every whole event; send what may be sent. False: the stream is over for the client."""
        dialect = self._dialect
        assert dialect is not None
        if self._terminal:
            return False
        splitter = Splitter(2 * TAIL)
        end = 0
        for event in splitter.feed(whole):
            sign = dialect.judge(event)
            if sign is Sign.ABORTED:
                if end:
                    self._send(whole[shown:end])
                    self._tail = b""
                self._fail(false_end("the engine aborted the request"))
                return False
            end += len(event.raw)
            if sign is Sign.ERROR:
                self._show_error(whole[shown:end], answers.error_event(self._attempt, event, shown=True))
                return False
            if sign is Sign.DONE:
                self._send(whole[shown:end])
                self._end_of_answer()
                return False
            if sign is Sign.FINISH or self._unpaid:
                self._note(event, finish=sign is Sign.FINISH)
        self._send(whole[shown:])
        return True

    def _note(self, event: Event, *, finish: bool) -> None:
        owed = self._owed
        if owed is None:
            owed = self._owed = Owed(self.call)
        owed.note(event, finish=finish)
        self._unpaid = owed.usage

    def _end_of_answer(self) -> None:
        """The terminal event is out: what remains is the end of the framing, and that has a grace."""
        self._terminal = True
        self._plain = False
        self._tail = b""
        self._done_at = self.call.client.service.clock.now

    def _show_error(self, data: bytes, fault: Fault) -> None:
        """Pass an engine's error event on, but not the end that it wants to put behind it."""
        self._send(data)
        self._client.cut()
        self._break_off(Outcome(Ending.UPSTREAM_LOST, fault.status, fault))

    def _fail(self, fault: Fault) -> None:
        """End a stream honestly: an error event where one fits, and no end of the framing."""
        ending = Ending.FAILED if fault.whose is Whose.GATEWAY else Ending.UPSTREAM_LOST
        told = self.at_boundary
        if told:
            self._client.send(error_event(fault, anthropic=self.call.route.anthropic, request_id=self.call.id))
        self._client.cut(told=told)
        self._break_off(Outcome(Ending.DEADLINE if fault.kind == "total_timeout" else ending, fault.status, fault))

    def _break_off(self, outcome: Outcome) -> None:
        self._close_upstream()
        self._resolve(outcome)

    @property
    def _finished(self) -> bool:
        """Whether every choice has ended with a reason, and no event stands open."""
        return self._owed is not None and self._owed.finished and not self._tail

    def on_end(self) -> None:
        if not self._sse or self._terminal or (self._finished and not self._unpaid):
            self._finish()
        else:
            self._fail(false_end("its stream ended without " + (USAGE if self._finished else "a finish reason")))

    def on_fault(self, fault: Fault) -> None:
        if self._terminal:
            self._finish()
        else:
            self._fail(fault)

    def on_quiet(self, quiet: float, now: float) -> None:
        if self._client.paused and self._attempt.connection is not None:
            self._attempt.connection.touched = now  # nothing is read, so the silence is not the worker's
        if (self._terminal and now - self._done_at > GRACE) or (
            self._finished and not self._unpaid and quiet > SILENCE
        ):
            self._close_upstream()
            self._finish()
        elif quiet > self._gap and not self._client.paused:
            self._fail(timed_out("gap", self._gap))
        elif now > self.call.deadline:
            self._fail(timed_out("total", self.call.chain.timeouts.total or 0.0))
        elif self.at_boundary:
            self.call.beat_if_due(
                now, quiet if self._taps is None else self._taps.silence(quiet, now, self._client.sent)
            )

    def _finish(self) -> None:
        outcome = Outcome(Ending.COMPLETED, self._attempt.status)
        if self._taps is not None and not self._taps.close(outcome):
            self._fail(INTERNAL)
            return
        self._client.end()
        self._resolve(outcome)

    def client_left(self) -> None:
        """The client closed its connection: so does the gateway, towards the worker, at once."""
        self._close_upstream()

    def _close_upstream(self) -> None:
        connection = self._attempt.connection
        if connection is not None and connection.sink is self:
            connection.release()

    def _resolve(self, outcome: Outcome) -> None:
        client = self._client
        client.relay = None
        upstream, client.upstream = client.upstream, None
        if client.paused and upstream is not None and not upstream.is_closing():
            upstream.resume_reading()  # a connection must not rest paused
        outcome.delivered_bytes = self._passed
        self.done.set(outcome)
