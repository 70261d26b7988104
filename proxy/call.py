"""One client request from its head to its Outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from tailrace.proxy.fault import FAILURES, Failed, Fault, Reject, fault_of, overdue, timed_out, too_large
from tailrace.proxy.head import Head, streaming_head
from tailrace.proxy.mishap import go_on_without, note
from tailrace.proxy.outcome import Usage
from tailrace.proxy.plugin import Key
from tailrace.proxy.publication import Publication
from tailrace.proxy.signal import Signal
from tailrace.proxy.stride import Stride
from tailrace.proxy.waiting import Waiting

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.body import JsonBody
    from tailrace.proxy.budget import Budget
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.delivery import Delivery
    from tailrace.proxy.fleet import ModelEntry, Worker
    from tailrace.proxy.harvest import Harvest
    from tailrace.proxy.head import RequestHead
    from tailrace.proxy.multipart import Form
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.peer import Peer
    from tailrace.proxy.pipeline import Link
    from tailrace.proxy.publication import Sharing
    from tailrace.proxy.race import Race
    from tailrace.proxy.rescue.trail import Trail
    from tailrace.proxy.routes import Route
    from tailrace.proxy.server import ClientConnection
    from tailrace.proxy.taps import Taps
    from tailrace.proxy.trace.context import TraceContext

log: Final = logging.getLogger("tailrace")
T = TypeVar("T")
P = ParamSpec("P")
_NEVER: Final = float("inf")
_SMALL: Final = 512
"""Bytes: below, an object for each part of a body takes a good deal more memory than is counted."""


class Call:
    """What the phases share. Plugins read everything and change it through `edit`, `call[KEY]` and `provide`."""

    # Class attributes are the defaults: most calls set few of them, and setting them all is what costs.
    raw = b""
    body: JsonBody | None = None
    form: Form | None = None
    model = ""
    entry: ModelEntry | None = None
    stream = False
    race: Race | None = None
    usage: Usage | None = None
    token_ids: list[int] | None = None
    trail: Trail | None = None
    """What another worker needs to go on with the answer, for calls that may be rescued."""
    harvest: Harvest | None = None
    delivery: Delivery | None = None
    taps: Taps | None = None
    sharing: Sharing | None = None
    pinned: Worker | None = None
    budget: asyncio.Timeout | None = None
    time: Budget | None = None
    trace: TraceContext | None = None
    stride: Stride = None  # type: ignore[assignment]
    outcome: Outcome | None = None
    answered_head: Head | None = None
    source = ""
    waited_ns = 0
    requeued_ns = 0
    between_events = True
    stopped: Fault | None = None
    received_ns = 0
    tried_before = 0
    keep_alive = True
    complete = False
    size = 0
    _broken: Fault | None = None
    _waiter: Signal[None] | None = None
    _state: dict[Key[Any], Any] | None = None
    _facts: dict[type, object] | None = None
    _failed_answers: tuple[Link, ...] = ()

    def __init__(
        self, call_id: str, chain: Chain, client: ClientConnection, head: RequestHead, route: Route, peer: Peer
    ) -> None:
        self.id = call_id
        self.chain = chain
        chain.calls.count += 1
        self.client = client
        self.head = head
        self.route = route
        self.peer = peer
        self.started_ns = time.monotonic_ns()
        self.beaten_at = now = client.service.clock.now
        total = chain.timeouts.total
        self.deadline = now + total if total else _NEVER
        self.tries: list[Attempt] = []
        self._parts: list[bytes | bytearray] = []

    def edit(self, name: str, value: bytes | None) -> None:
        """Change one top-level field of the JSON body: `value` is JSON text, None removes the field."""
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"the new value of '{name}' must be JSON as bytes, not {type(value).__name__}")
        if self.body is None:
            raise RuntimeError(f"the body of {self.route.path} is not JSON and has no field '{name}'")
        self.body.edit(name, value)

    def __getitem__(self, key: Key[T]) -> T:
        if self._state is None:
            raise KeyError(key.name)
        return cast("T", self._state[key])

    def __setitem__(self, key: Key[T], value: T) -> None:
        if self._state is None:
            self._state = {}
        self._state[key] = value

    def __contains__(self, key: Key[Any]) -> bool:
        return self._state is not None and key in self._state

    def provide(self, fact: object) -> None:
        """Publish a typed fact, such as who the caller is, for plugins further down the list."""
        if self._facts is None:
            self._facts = {}
        self._facts[type(fact)] = fact

    def fact(self, kind: type[T]) -> T | None:
        """The fact of this type, None where no plugin has published one."""
        return None if self._facts is None else cast("T | None", self._facts.get(kind))

    def waiting(self) -> Waiting:
        """`async with call.waiting():` around a wait in a queue: outside any budget, rechecked when it ends."""
        return Waiting(self)

    async def offload(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something that would hold up the event loop in a thread."""
        return await asyncio.to_thread(work, *args, **kwargs)

    def publish(self, limit: int) -> Publication:
        """Let other calls have this one's answer, up to `limit` bytes of it."""
        self.sharing = shared = Publication(self, limit)
        return shared

    # The body's arrival.

    def take(self, data: bytes) -> None:
        """Some of the body; raises Reject where it or all bodies together pass their bound."""
        size = len(data)
        limit = self.chain.limits.body
        if self.size + size > limit:
            raise too_large(limit)
        memory = self.client.service.memory
        if memory.used + size > memory.limit:
            raise memory.full()
        memory.used += size
        self.size += size
        parts = self._parts
        if size >= _SMALL or not parts:
            parts.append(data)
        elif isinstance(last := parts[-1], bytearray):
            last += data
        else:
            parts.append(bytearray(data))

    def taken(self) -> None:
        """The body is whole."""
        parts = self._parts
        self.raw = cast("bytes", parts[0]) if len(parts) == 1 else b"".join(parts)  # the first is never joined to
        parts.clear()
        self.complete = True
        if self._waiter is not None:
            self._waiter.set(None)

    def replace(self, body: bytes) -> None:
        """Hold another body in place of the one received; raises Reject where all bodies together pass their bound."""
        memory = self.client.service.memory
        more = len(body) - self.size
        if memory.used + more > memory.limit:
            raise memory.full()
        memory.used += more
        self.size += more
        self.raw = body

    async def receive(self) -> None:
        """Wait for the whole body; a client that asked first is told to send it."""
        if self._broken is not None:
            raise Failed(self._broken)
        if self.head.expects_continue:
            self.client.proceed()
        self._waiter = Signal()
        await self._waiter
        self.received_ns = time.monotonic_ns()
        # A slow upload is no silence on the gateway's side.
        self.beaten_at = self.client.service.clock.now

    def fail(self, fault: Fault) -> None:
        """The body will never be whole."""
        self._broken = fault
        if self._waiter is not None:
            self._waiter.fail(Failed(fault))

    def drop(self) -> None:
        """Let go of body and chain, exactly once: the call is over, or will never be served."""
        service = self.client.service
        service.memory.used -= self.size
        self.size = 0
        chain = self.chain
        chain.calls.count -= 1
        if not chain.calls.count and chain is not service.chain:
            service.retire(chain)

    def untie(self) -> None:
        """Let go of what refers back to it: it is freed at once then, its memory still at hand for the next call."""
        for attempt in self.tries:
            attempt.untie()
        self.race = None
        self.stride = None  # type: ignore[assignment]
        self.harvest = None
        self.delivery = None
        self.taps = None
        self._waiter = None

    # The answer.

    def answer(self, head: Head, *, refusing: bool = False) -> None:
        """Let plugins see and change the one head that goes to the client; none of them can stop a refusal."""
        self.answered_head = head
        for on_answer in self.chain.pipeline.on_answer:
            try:
                on_answer(self, head)
            except FAILURES as error:
                self._answer_failed(self.chain.pipeline.owners[on_answer], error, refusing=refusing)

    def _answer_failed(self, link: Link, error: BaseException, *, refusing: bool) -> None:
        known = any(other is link for other in self._failed_answers)
        if not known:
            self._failed_answers = (*self._failed_answers, link)
        if not refusing:
            go_on_without(self, link, "on_answer", error)
        elif not known and not isinstance(error, Reject | Failed):
            note(self, link.name, "on_answer", error)

    def visit(self, now: float) -> None:
        """Called a few times a second while nothing is relayed: heartbeat and total limit."""
        relay = self.client.relay
        if relay is not None:
            if relay.rescue is not None:
                relay.rescue.visit(now)
            return
        if now > self.deadline:
            total = self.chain.timeouts.total or 0.0
            self.stop(timed_out("total", total) if self.race is not None else overdue(total))
        elif self.stream and self.between_events:
            self.beat_if_due(now, now - self.beaten_at)

    def beat_if_due(self, now: float, quiet: float) -> None:
        """Send a heartbeat where the client has heard nothing for an interval; only between two events."""
        interval = self.chain.heartbeat
        if interval and quiet >= interval and now - self.beaten_at >= interval:
            self._beat(now)

    def _beat(self, now: float) -> None:
        """Keep the connection alive; the first beat commits the status to 200."""
        dialect = self.route.dialect
        if dialect is None:
            return
        self.beaten_at = now
        client = self.client
        if not client.started:
            head = Head(200, [(b"content-type", b"text/event-stream; charset=utf-8")])
            streaming_head(head)
            try:
                self.stride.within(self.answer, head)
            except FAILURES as error:
                self.stop(fault_of(error))
                return
            client.begin(head)
        client.send(dialect.heartbeat)

    def stop(self, fault: Fault) -> None:
        """End the call with a fault from outside its coroutine, whatever that waits for."""
        relay = self.client.relay
        if relay is not None:
            self.stride.within(relay.on_fault, fault)
        elif self.race is not None:
            self.race.expire(fault)
        elif self.stopped is None:
            # Once: a plugin may need a while to tidy up.
            self.stopped = fault
            self.stride.cancel()
