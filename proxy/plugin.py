"""The plugin interface. Methods stand in the order in which a call meets them.

A plugin overrides the phases it needs; the others cost nothing, because `Pipeline.of` looks once, at start, at what a
class defines. Plugins know this module and the nouns it names, not each other and not the relay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.fleet import Pool, Worker
    from tailrace.proxy.ground import Ground, Places
    from tailrace.proxy.head import Head
    from tailrace.proxy.host import HostPart
    from tailrace.proxy.outcome import AttemptEnd, Outcome
    from tailrace.proxy.reply import Reply
    from tailrace.proxy.sse import Event

ConfigT = TypeVar("ConfigT")
T = TypeVar("T")

EXCLUDED = -1.0
"""The score of a worker that must not get the call."""


class Needs(Flag):
    """What the core asks the engine for on a plugin's behalf, and removes again if the client did not ask."""

    NOTHING = 0
    USAGE = auto()
    TOKEN_IDS = auto()
    RUNNING_USAGE = auto()
    """The usage so far with every event of a stream, for `call.harvest.follow`; to be asked for together with USAGE."""


class Verdict(Enum):
    """What an attempt policy says of a stream that has not been committed yet."""

    COMMIT = "commit"
    WAIT = "wait"
    NEXT = "next"


class Key(Generic[T]):
    """A private, typed place in a call for one plugin's state between phases: `call[HELD] = 3`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Target:
    """Where a further attempt should go; what is None stays as the call has it.

    It starts after `delay` seconds. `why` is told to `allow` and is a metric label: retry or fallback. With a `reply`
    there is no attempt: that is the answer, a degraded one.
    """

    __slots__ = ("delay", "model", "pool", "reply", "why", "worker")

    def __init__(
        self,
        *,
        worker: Worker | None = None,
        pool: Pool | None = None,
        model: str | None = None,
        delay: float = 0.0,
        why: str = "retry",
        reply: Reply | None = None,
    ) -> None:
        self.worker = worker
        self.pool = pool
        self.model = model
        self.delay = delay
        self.why = why
        self.reply = reply


class Watch(Protocol):
    """A tap that only looks: it gets the answer's bytes as they are relayed."""

    def feed(self, data: bytes) -> None:
        """See some bytes; called synchronously, once for each piece."""

    def finish(self, outcome: Outcome) -> None:
        """See how the stream ended; called exactly once."""


class Edit(Protocol):
    """A tap that may change, hold back or add events."""

    def feed(self, event: Event) -> Iterable[Event]:
        """What goes on to the client in place of one whole event; () holds it back."""

    def finish(self, outcome: Outcome) -> Iterable[Event]:
        """What was held back. Called exactly once; what it returns is sent only where the stream ended well."""

    def body(self, data: bytes) -> bytes:
        """A whole unary answer, changed or not."""


Tap = Watch | Edit


class Plugin(Generic[ConfigT]):
    """Base of every plugin: one instance a chain, alive from one configuration change to the next."""

    Config: ClassVar[type]
    """A frozen dataclass; unknown keys in the YAML are refused by its fields."""

    needs: ClassVar[Needs] = Needs.NOTHING
    provides: ClassVar[tuple[type, ...]] = ()
    requires: ClassVar[tuple[type, ...]] = ()
    heeds: ClassVar[tuple[type, ...]] = ()
    """Facts that it goes by where somebody gives them: whoever does has to stand before it."""
    waits: ClassVar[bool] = False
    """Whether `on_request` may wait for a network or disk; bounded by the entry's `budget_ms`."""

    keeps_files: ClassVar[bool] = True
    """Whether what it runs once on a host uses the places it is given, which are this supervisor's alone then."""

    ground: Ground
    """What the plugin shares with its likes in other processes; set before `running` where it has a `host_part`."""

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    def host_part(self, places: Places) -> AbstractAsyncContextManager[HostPart]:
        """What the plugin runs once on a host, in the supervisor: before its processes begin, until they have ended.

        The instance is the supervisor's own: it serves no calls, and its `running` is not entered.
        """
        raise NotImplementedError  # abstract

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What the plugin holds while the proxy runs: entered before the first call, left after the last."""
        yield

    def on_open(self, call: Call) -> None:
        """Once, when the head is there and before the body is read; a Reject costs no body. Must not block."""
        raise NotImplementedError  # abstract

    def on_request(self, call: Call) -> Awaitable[Reply | None] | Reply | None:
        """Once, with the body complete. A Reply answers at once, a Reject refuses; the call may be edited.

        `async def` where it waits; a plain `def` that returns None or a Reply costs less, and may return a coroutine
        for the calls that do have to wait.
        """
        raise NotImplementedError  # abstract

    def recheck(self, call: Call) -> None:
        """When a call leaves a queue: refuse it if what admitted it no longer holds."""
        raise NotImplementedError  # abstract

    def score_workers(self, call: Call, candidates: Sequence[Worker]) -> Sequence[float]:
        """Once an attempt: a score in [0, 1] for each candidate, or EXCLUDED. No I/O."""
        raise NotImplementedError  # abstract

    def nominate(self, call: Call, eligible: Sequence[Worker]) -> Sequence[Worker]:
        """Which of more than eight workers must be among the eight candidates; the others are drawn by chance."""
        raise NotImplementedError  # abstract

    def on_chosen(self, call: Call, attempt: Attempt) -> bool:
        """Right after the choice, with nothing awaited since scoring; False asks for another choice."""
        raise NotImplementedError  # abstract

    def patience(self, call: Call, tries: Sequence[Attempt]) -> float | None:
        """Seconds from now after which another attempt may start beside the running ones; the smallest wins."""
        raise NotImplementedError  # abstract

    def next_target(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> Target | None:
        """Where to go on after a fault; the first plugin in list order that names a target decides.

        `tries` is empty where there was no worker to ask.
        """
        raise NotImplementedError  # abstract

    def allow(self, call: Call, tries: Sequence[Attempt], why: str) -> bool:
        """Whether a further attempt may start; every plugin must agree. `why` is retry, hedge, fallback or rescue."""
        raise NotImplementedError  # abstract

    def judge(self, call: Call, attempt: Attempt, prefix: Sequence[Event]) -> Verdict:
        """What to do with an attempt whose first events are `prefix`; the core commits at first content."""
        raise NotImplementedError  # abstract

    def on_commit(self, call: Call, attempt: Attempt) -> None:
        """Once, when an attempt wins: its first content is there, or a whole body that is no stream."""
        raise NotImplementedError  # abstract

    def on_attempt_end(self, call: Call, attempt: Attempt, end: AttemptEnd) -> None:
        """Once for each attempt that was chosen: won, failed, or cancelled as the slower one."""
        raise NotImplementedError  # abstract

    def on_answer(self, call: Call, head: Head) -> None:
        """Once, for every head that goes to a client: a worker's, a Reply's, a refusal's, the core's own."""
        raise NotImplementedError  # abstract

    def on_stream(self, call: Call, head: Head) -> Tap | None:
        """A tap for this answer, or None to leave it alone. A tap sees no field that the core injected."""
        raise NotImplementedError  # abstract

    def on_ending(self, call: Call, outcome: Outcome, release: Callable[[], None]) -> bool:
        """A worker's whole and good answer is about to end: True holds its last event, or all of it, until `release`.

        Once at most. The client may leave meanwhile; a release after that means nothing.
        """
        raise NotImplementedError  # abstract

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Exactly once, whatever happened. Must not raise."""
        raise NotImplementedError  # abstract


AnyPlugin = Plugin[Any]
Lifetime = AbstractAsyncContextManager[None]
