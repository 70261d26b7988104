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
from tailrace.proxy.closing import Closing, nowhere
from tailrace.proxy.delivery import Delivery
from tailrace.proxy.dialects import Sign
from tailrace.proxy.errors import event as error_event
from tailrace.proxy.errors import retold
from tailrace.proxy.fault import FAILURES, INTERNAL, Failed, Fault, Reject, Whose, false_end, fault_of, timed_out
from tailrace.proxy.open_event import MOST, OpenEvent
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.passage import Passage, passage_of
from tailrace.proxy.signal import Signal
from tailrace.proxy.sink import Sink
from tailrace.proxy.sse import Event, Splitter
from tailrace.proxy.taps import Taps
from tailrace.proxy.wire import ParsedHead, unframe

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call

log: Final = logging.getLogger("tailrace")


class StreamRelay(Sink):
    """The sink of the winning exchange once it is shown; resolves `done` exactly once."""

    __slots__ = (
        "_attempt", "_client", "_closing", "_delivery", "_dialect", "_gap", "_open", "_passage", "_plain", "_raw",
        "_send", "_sse", "_taps", "_write", "call", "done", "passed",
    )  # fmt: skip

    def __init__(self, call: Call, attempt: Attempt, taps: Taps | None) -> None:
        self.call = call
        self._attempt = attempt
        self._client = call.client
        self._send = call.client.send if taps is None else taps.sender(self._deliver)
        self._raw = self._plain = False
        self._write: Callable[[bytes], None] = call.client.send_chunks
        self._taps = taps
        self.done: Signal[Outcome] = Signal()
        self._sse = attempt.streaming
        self._open = OpenEvent()
        self.passed = 0  # bytes of the body that went on in their own framing
        self._passage: Passage | None = None
        self._delivery: Delivery | None = None
        self._closing = Closing(attempt, self._let_go)
        self._gap = call.chain.timeouts.gap
        self._dialect = call.route.dialect

    def attach(self) -> None:
        """Take over the exchange, with what the attempt has held back so far."""
        attempt, client = self._attempt, self._client
        client.relay = self
        if self._sse:
            harvest = self.call.harvest
            if harvest is not None:
                self._delivery = self.call.delivery = Delivery(self.call, harvest, client.transport)
            self._passage = passage_of(self.call, self._taps)
            self._raw = self._plain = self._passage is not None and client.passes_chunks
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
        between = not self._open.size if self._taps is None else self._taps.between_events(not self._open.size)
        return self._sse and between and not self._closing.terminal

    def on_head(self, head: ParsedHead) -> None:
        """Not called: the head came before the commit."""

    def on_chunks(self, chunks: bytes, count: int) -> None:
        # The usual read goes on as it came.
        if self._plain and self._passage is not None:
            passed = self._passage.passed(chunks, count)
            if passed is not None:
                if self._delivery is not None:
                    self._delivery.moved(self.passed + self._client.sent)
                self.passed += len(passed)
                self._write(passed)
                return
        self.on_data(unframe(chunks))

    def _deliver(self, data: bytes) -> None:
        """What taps let through goes to the client."""
        if self._delivery is not None:
            self._delivery.moved(self.passed + self._client.sent)
        self._client.send(data)

    def _needs_look(self, data: bytes) -> bool:
        return self._closing.terminal or (self._dialect is not None and not self._dialect.silent(data))

    def on_data(self, data: bytes) -> None:
        if not self._sse:
            self._send(data)
            return
        open_event = self._open
        if open_event.goes_on(data):
            self._send(data)
            return
        shown = open_event.size
        whole = data
        if shown:
            before = open_event.content
            shown = len(before)
            whole = before + data
        if self._closing.unpaid or self._needs_look(whole):
            if not self._inspect(whole, shown):
                return
        else:
            self._send(data)
        if whole.endswith(b"\n\n"):
            open_event.set(b"")
        else:
            splitter = Splitter(MOST)
            splitter.feed(whole)
            rest = splitter.rest
            # A line feed behind its carriage return opens no event.
            open_event.set(rest[-MOST:] if rest.strip(b"\r\n") else b"")
        self._plain = self._raw and not open_event.size and not self._closing.unpaid

    def _inspect(self, whole: bytes, shown: int) -> bool:
        """Judge every whole event; send what may be sent. False: the stream is over for the client."""
        dialect = self._dialect
        assert dialect is not None
        closing = self._closing
        if closing.terminal:
            return False
        splitter = Splitter(2 * MOST)
        end = 0
        for event in splitter.feed(whole):
            sign = dialect.judge(event)
            if sign is Sign.ABORTED:
                if end:
                    self._send(whole[shown:end])
                    self._open.set(b"")
                self._fail(false_end("the engine aborted the request"))
                return False
            end += len(event.raw)
            if sign is Sign.ERROR:
                self._show_error(whole[shown:end], event, answers.error_event(self._attempt, event, shown=True))
                return False
            if sign is Sign.DONE:
                self._end_of_answer(whole, shown, max(shown, end - len(event.raw)), end)
                return False
            if sign is Sign.FINISH or closing.unpaid:
                closing.note(event, finish=sign is Sign.FINISH)
        self._send(whole[shown:])
        return True

    def _end_of_answer(self, whole: bytes, shown: int, last: int, end: int) -> None:
        """The terminal event is there, from `last` to `end`."""
        self._closing.end()
        self._plain = False
        self._open.set(b"")
        if self.call.chain.pipeline.on_ending:
            self._send(whole[shown:last])
            shown = last
            if self._closing.holds(whole[last:end]):
                return
        self._send(whole[shown:end])

    def _let_go(self, held: bytes) -> None:
        """Nobody holds the last bytes back any longer."""
        if self._client.relay is self:
            if held:
                self._send(held)
            if self._attempt.ended:
                self._finish()

    def _show_error(self, data: bytes, last: Event, fault: Fault) -> None:
        """Pass an engine's error event on, but not the end that it wants to put behind it."""
        self._send(retold(data, last, fault, anthropic=self.call.route.anthropic, request_id=self.call.id))
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

    def on_end(self) -> None:
        self._attempt.ended = True
        missing = self._closing.missing(self._open.size) if self._sse else None
        if missing is None:
            self._finish()
        else:
            self._fail(false_end(f"its stream ended without {missing}"))

    def on_fault(self, fault: Fault) -> None:
        if self._closing.terminal:
            # Where the fault is not the worker's, its connection would bring this relay the end once more.
            self._close_upstream()
            self.on_end()
        else:
            self._fail(fault)

    def on_quiet(self, quiet: float, now: float) -> None:
        if self._client.paused and self._attempt.connection is not None:
            self._attempt.connection.touched = now  # nothing is read, so the silence is not the worker's
        if self._closing.overdue(self._open.size, quiet, now):
            self._close_upstream()
            self.on_end()
        elif quiet > self._gap and not self._client.paused:
            self._fail(timed_out("gap", self._gap))
        elif now > self.call.deadline:
            self._fail(timed_out("total", self.call.chain.timeouts.total or 0.0))
        elif self.at_boundary:
            sent = self._client.sent + self.passed
            self.call.beat_if_due(now, quiet if self._taps is None else self._taps.silence(quiet, now, sent))

    def _finish(self) -> None:
        if self._closing.holding or self._closing.holds(b""):
            return
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
        outcome.delivered_bytes = self.passed
        self.done.set(outcome)
        # Nothing goes in circles, so that all of it is freed at once.
        self._closing.forget()
        self._send = nowhere
        self._taps = None
