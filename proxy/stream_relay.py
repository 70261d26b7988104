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
from tailrace.proxy.delivery import Delivery
from tailrace.proxy.dialects import OVER, Sign
from tailrace.proxy.fault import FAILURES, Failed, Reject, false_end, fault_of, gone_quiet, timed_out
from tailrace.proxy.open_event import MOST
from tailrace.proxy.passage import Passage, passage_of
from tailrace.proxy.sse import Splitter
from tailrace.proxy.stream_ending import StreamEnding
from tailrace.proxy.taps import Taps
from tailrace.proxy.wire import ParsedHead, unframe

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call

log: Final = logging.getLogger("tailrace")


class StreamRelay(StreamEnding):
    """The sink of the winning exchange once it is shown; resolves `done` exactly once."""

    __slots__ = ("_delivery", "_dialect", "_passage", "_patience", "_write")

    def __init__(self, call: Call, attempt: Attempt, taps: Taps | None) -> None:
        super().__init__(call, attempt, taps, call.client.send)
        if taps is not None:
            self._send = taps.sender(self._deliver)
        self._write: Callable[[bytes], None] = call.client.send_chunks
        self._passage: Passage | None = None
        self._delivery: Delivery | None = None
        trail = call.trail
        gap = call.chain.timeouts.gap
        self._patience = gap if trail is None or trail.patience > gap else trail.patience
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
            if client.paused and client.holds_back and connection.transport is not None:
                connection.transport.pause_reading()
        held = attempt.held
        attempt.held = []
        if held:
            try:
                data = held[0] if len(held) == 1 else b"".join(held)
                if self.call.trail is not None:
                    self.on_data(self.call.trail.open(unframe(data) if attempt.framed else data))
                elif attempt.framed:
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
        if self.rescue is not None or self.done.settled:
            return  # all that was held back was of a worker that is lost
        if attempt.ended:
            self.on_end()
        elif attempt.fault is not None:
            self.on_fault(attempt.fault)

    @property
    def owes(self) -> bool:
        return self._sse and not self._client.paused and not self._closing.terminal

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
                fault = answers.error_event(self._attempt, event, shown=True)
                last = max(shown, end - len(event.raw))
                self._send(whole[shown:last])
                if not self._goes_on(fault):
                    self._show_error(whole[last:end], event, fault)
                return False
            if sign is Sign.DONE or event.data == OVER:
                start = end - len(event.raw)
                vouches = sign is Sign.DONE and dialect.conclusive
                if not vouches and not closing.finished(0):
                    if start:
                        self._send(whole[shown:start])
                        self._open.set(b"")
                        shown = start
                    if self._ends_falsely():
                        return False
                if sign is Sign.DONE:
                    self._end_of_answer(whole, shown, max(shown, start), end)
                    return False
            if sign is Sign.FINISH or closing.unpaid:
                closing.note(event, finish=sign is Sign.FINISH)
        self._send(whole[shown:])
        return True

    def _ends_falsely(self) -> bool:
        """An engine says that this is all, with reasons missing: whether another one goes on, or it is no end."""
        fault = false_end("it ended without a finish reason")
        if self._goes_on(fault):
            return True
        if self._closing.reasoned:
            return False  # that there are fewer choices than were asked for, the engine's word is taken for
        self._end_honestly(fault)
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

    def on_quiet(self, quiet: float, now: float) -> None:
        waits = self._client.paused and self._client.holds_back
        if waits and self._attempt.connection is not None:
            self._attempt.connection.touched = now  # nothing is read, so the silence is not the worker's
        if self._closing.overdue(self._open.size, quiet, now):
            self._close_upstream()
            self.on_end()
        elif quiet > self._patience and not waits and self._moves(quiet):
            return
        elif now > self.call.deadline:
            self._fail(timed_out("total", self.call.chain.timeouts.total or 0.0))
        elif self.at_boundary:
            sent = self._client.sent + self.passed
            self.call.beat_if_due(now, quiet if self._taps is None else self._taps.silence(quiet, now, sent))

    def _moves(self, quiet: float) -> bool:
        """Whether a worker that has been silent for longer than one has patience is waited for no more."""
        gap = self.call.chain.timeouts.gap
        if quiet > gap:
            self._fail(timed_out("gap", gap))
            return True
        return self._doubted is None and self._goes_on(gone_quiet(self._patience), doubt=True)

    def believe(self) -> None:
        """Nobody else goes on: the worker that was in doubt is waited for as if nobody ever could."""
        self.stays()
        self._patience = self.call.chain.timeouts.gap
