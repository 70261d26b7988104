"""How another worker is asked for a stream whose own was lost: chosen, connected, within limits, or the next one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from tailrace.proxy.allowing import MAX_TRIES, others
from tailrace.proxy.fault import FAILURES, Failed, Fault, Reject, timed_out
from tailrace.proxy.rescue import request

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.rescue.step import Step
    from tailrace.proxy.stream_relay import StreamRelay
    from tailrace.proxy.upstream import UpstreamConnection

log: Final = logging.getLogger("tailrace")


class Errand:
    """One attempt after the other, each with its steps; the stream ends with `fault` where none goes on with it.

    While its own worker is in `doubt` only, it stays there instead.
    """

    def __init__(self, relay: StreamRelay, fault: Fault, doubt: bool) -> None:
        self._relay = relay
        self._fault = fault
        self.doubt = doubt
        self._call = relay.call
        self._attempt: Attempt | None = None
        self._path = b""
        self._content = b""
        self._sink: Step | None = None
        self._fresh = False
        self._limit = 0.0
        self._asked_at = 0.0

    def _has_heir(self) -> bool:
        """Whether there is a worker to ask; it is chosen then."""
        race = self._call.race
        assert race is not None
        self._attempt = race.pass_on(self._fault)
        return self._attempt is not None

    def lost(self, fault: Fault) -> None:
        """The stream's own worker is lost for good."""
        self.doubt = False
        self._fault = fault
        assert self._call.race is not None
        self._call.race.lost(fault)

    def _begin(self) -> None:
        """The first step with the worker that was chosen."""
        raise NotImplementedError

    def _set_out(self) -> None:
        self._fresh = False
        self.step(self._begin)

    def step(self, act: Callable[..., None], *args: object) -> None:
        """Do something that may fail: the stream ends honestly then."""
        try:
            act(*args)
        except FAILURES as error:
            self._log(error)
            self.give_up()

    def _log(self, error: BaseException) -> None:
        if not isinstance(error, Reject | Failed):
            log.error("the stream of request %s cannot be continued", self._call.id, exc_info=error)

    def give_up(self) -> None:
        """Nobody goes on: the stream stays with a worker that is in doubt, or ends as it would have."""
        self.close()
        if self.doubt:
            self._relay.believe()
        else:
            self._relay.give_up(self._fault)

    def close(self) -> None:
        """The stream is over, or another rescue begins."""
        self._forget()
        attempt, self._attempt = self._attempt, None
        if attempt is not None and self._call.race is not None:
            self._call.race.drop(attempt)
            attempt.release()

    def failed(self, fault: Fault) -> None:
        """Ask another worker, as the present one cannot help, or let the stream end."""
        attempt, race = self._attempt, self._call.race
        assert attempt is not None
        assert race is not None
        if not fault.sent and fault.kind == "connection_lost" and not self._fresh and self._sink is not None:
            # A resting connection was closed in the moment of its use: this says nothing about the worker.
            self._fresh = True
            self.step(self._ask, self._path, self._content, self._sink)
            return
        self._attempt = None
        race.drop(attempt, fault)
        try:
            found = self._has_heir()
        except FAILURES as error:
            self._log(error)
            found = False
        if found:
            self._set_out()
        else:
            self.give_up()

    def doubted(self, fault: Fault) -> None:
        """The worker has fallen silent before it went on; where nobody else may be asked, it is waited for."""
        call, attempt = self._call, self._attempt
        if attempt is not None and others(call, attempt) and len(call.tries) + call.tried_before < MAX_TRIES:
            attempt.release()
            self.failed(fault)

    def _doubted_opening(self, fault: Fault, lost: bool) -> None:
        self.doubted(fault)

    def visit(self, now: float) -> None:
        """Called a few times a second, also while no connection is there that would say so."""
        attempt = self._attempt
        if (not self._relay.held) if attempt is None else attempt.opening is not None:
            self.wait(now)

    def wait(self, now: float) -> None:
        """Keep the limits while the other worker does not go on yet, and the client's connection alive."""
        if now > self._call.deadline:
            self._fault = timed_out("total", self._call.chain.timeouts.total or 0.0)
            self.give_up()
        elif now - self._asked_at > self._limit and self._attempt is not None:
            self._attempt.release()
            self.failed(timed_out("first_content", self._limit))
        else:
            self._call.beat_if_due(now, now - self._relay.lost_at)

    def _ask(self, path: bytes, content: bytes, sink: Step) -> None:
        attempt = self._attempt
        assert attempt is not None
        self._path, self._content, self._sink = path, content, sink
        self._limit = self._call.chain.timeouts.first_content(len(content))
        self._asked_at = self._call.client.service.clock.now
        attempt.heir = sink
        pool = attempt.worker.connections
        connection = None if self._fresh else pool.take()
        if connection is not None:
            self._send(connection)
        else:
            attempt.opening = pool.connect(self._send, self.failed, self._doubted_opening).cancel

    def _send(self, connection: UpstreamConnection) -> None:
        attempt, call, sink = self._attempt, self._call, self._sink
        assert attempt is not None
        assert sink is not None
        attempt.opening = None
        attempt.connection = connection
        head = request.head(call, attempt.worker, attempt.number, self._path, len(self._content))
        connection.stride = call.stride  # taps of plugins run as the bytes come
        sink.sent_ns = attempt.worker.last_sent_ns = monotonic_ns()
        if sink.generates:
            attempt.sent_ns = sink.sent_ns
        connection.send(sink, head, self._content)

    def heard(self) -> None:
        """The worker answers: what it was asked is of no more use."""
        self._forget()

    def _forget(self) -> None:
        self._content = b""
        self._sink = None
