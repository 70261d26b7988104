"""How a stream ends for its client: whole, honestly broken off, or not at all, as another worker goes on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tailrace.proxy.closing import Closing, nowhere
from tailrace.proxy.errors import event as error_event
from tailrace.proxy.errors import retold
from tailrace.proxy.fault import FAILURES, INTERNAL, Fault, Whose, false_end, fault_of
from tailrace.proxy.open_event import OpenEvent
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.rescue.doubted import Doubted
from tailrace.proxy.rescue.rescue import Rescue, rescuable
from tailrace.proxy.signal import Signal
from tailrace.proxy.sink import Sink
from tailrace.proxy.sse import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.stream_relay import StreamRelay
    from tailrace.proxy.taps import Taps


class StreamEnding(Sink):
    """The part of a stream's relay that decides over its end; resolves `done` exactly once."""

    __slots__ = (
        "_attempt", "_client", "_closing", "_doubted", "_open", "_plain", "_raw", "_send", "_sse", "_taps", "call",
        "done", "lost_at", "passed", "rescue",
    )  # fmt: skip

    def __init__(self, call: Call, attempt: Attempt, taps: Taps | None, send: Callable[[bytes], None]) -> None:
        self.call = call
        self._attempt = attempt
        self._client = call.client
        self._send = send
        self._raw = self._plain = False
        self._taps = taps
        self.done: Signal[Outcome] = Signal()
        self._sse = attempt.streaming
        self._open = OpenEvent()
        self.passed = 0  # bytes of the body that went on in their own framing
        self._closing = Closing(attempt, self._let_go)
        self.rescue: Rescue | None = None
        self._doubted: Doubted | None = None
        self.lost_at = 0.0

    @property
    def at_boundary(self) -> bool:
        """Whether bytes of the gateway's own would land between two events."""
        between = not self._open.size if self._taps is None else self._taps.between_events(not self._open.size)
        return self._sse and between and not self._closing.terminal

    @property
    def unpaid(self) -> bool:
        """Whether every choice has ended, and usage that was asked for is still to come."""
        return self._closing.unpaid

    @property
    def held(self) -> bool:
        """Whether a plugin holds back the last bytes, for which it has a limit of its own."""
        return self._closing.holding

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

    def on_doubt(self, fault: Fault, lost: bool) -> None:
        if lost:
            self._goes_on(fault, doubt=True)

    def client_left(self) -> None:
        """The client closed its connection: so does the gateway, towards the worker, at once."""
        self._close_upstream()

    def _fail(self, fault: Fault) -> None:
        """Let another worker go on, or end the stream."""
        if not self._goes_on(fault):
            self._end_honestly(fault)

    def _goes_on(self, fault: Fault, *, doubt: bool = False) -> bool:
        """Whether another worker takes the place of one that is lost, or is asked to, where that is in `doubt` only."""
        trail, body = self.call.trail, self.call.body
        if trail is None or body is None or not rescuable(fault) or self._closing.terminal:
            return False
        if self._doubted is not None:
            if not doubt:
                self.leave(fault)
            return True
        rescue = Rescue(cast("StreamRelay", self), trail, body, fault, doubt)
        if not rescue.possible():
            return False
        self.lost_at = self._client.service.clock.now
        connection = self._attempt.connection
        if rescue.doubt and connection is not None and connection.sink is not None:
            self._doubted = Doubted(cast("StreamRelay", self), connection, connection.sink, self.rescue)
            self.rescue = rescue
        else:
            if rescue.doubt:
                rescue.lost(fault)  # with no connection of its own it has no way back
            self._take_leave(rescue)
        rescue.begin()
        return True

    def _take_leave(self, rescue: Rescue) -> None:
        """Nothing more is wanted of the worker that had the stream so far."""
        self._close_upstream()
        self._open.set(b"")
        if self._taps is not None:
            self._taps.drop_open()
        self._raw = self._plain = False
        self.rescue = rescue

    def leave(self, fault: Fault) -> None:
        """A worker that was in doubt is lost, or too late: whatever becomes of the other one."""
        rescue = self._put_back()
        if rescue is not None:
            rescue.lost(fault)
            self._take_leave(rescue)

    def stays(self) -> None:
        """A worker that was in doubt has the stream still."""
        rescue = self._put_back()
        if rescue is not None:
            rescue.close()

    def _put_back(self) -> Rescue | None:
        """End a doubt; what was begun for it."""
        doubted, self._doubted = self._doubted, None
        if doubted is None:
            return None
        doubted.put_back()
        rescue, self.rescue = self.rescue, doubted.rescue
        return rescue

    def resume(self, attempt: Attempt) -> None:
        """Another worker goes on with the stream: its attempt is the one that counts."""
        client, connection = self._client, attempt.connection
        self._attempt = attempt
        assert self.call.race is not None
        self.call.race.taken_over(attempt)
        if connection is not None:
            client.upstream = connection.transport
            if client.paused and client.holds_back and connection.transport is not None:
                connection.transport.pause_reading()

    def give_up(self, fault: Fault) -> None:
        """No other worker goes on with the stream."""
        if fault.body is None:
            self._end_honestly(fault)
            return
        told = b"data: " + fault.body + b"\n\n"
        try:
            self._show_error(told, Event(told), fault)
        except FAILURES as error:
            # Nobody who calls this could end the stream for what a tap makes of the engine's error.
            self._end_honestly(fault_of(error))

    def _end_honestly(self, fault: Fault) -> None:
        """End a stream with an error event where one fits, and no end of the framing."""
        ending = Ending.FAILED if fault.whose is Whose.GATEWAY else Ending.UPSTREAM_LOST
        told = self.at_boundary
        if told:
            self._client.send(error_event(fault, anthropic=self.call.route.anthropic, request_id=self.call.id))
        self._client.cut(told=told)
        self._break_off(Outcome(Ending.DEADLINE if fault.kind == "total_timeout" else ending, fault.status, fault))

    def _show_error(self, data: bytes, last: Event, fault: Fault) -> None:
        """Pass an engine's error event on, but not the end that it wants to put behind it."""
        self._send(retold(data, last, fault, anthropic=self.call.route.anthropic, request_id=self.call.id))
        self._client.cut()
        self._break_off(Outcome(Ending.UPSTREAM_LOST, fault.status, fault))

    def _break_off(self, outcome: Outcome) -> None:
        self._close_upstream()
        self._resolve(outcome)

    def _let_go(self, held: bytes) -> None:
        """Nobody holds the last bytes back any longer."""
        if self._client.relay is self:
            if held:
                self._send(held)
            if self._attempt.ended:
                self._finish()

    def _finish(self) -> None:
        if self._closing.holding or self._closing.holds(b""):
            return
        outcome = Outcome(Ending.COMPLETED, self._attempt.status)
        if self._taps is not None and not self._taps.close(outcome):
            self._fail(INTERNAL)
            return
        self._client.end()
        self._resolve(outcome)

    def _close_upstream(self) -> None:
        self.stays()
        if self.rescue is not None:
            self.rescue.close()
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
        self._taps = self.rescue = None
