"""The gate before the engine: so many calls inside, so many in line, whoever is due first before others.

It is the last link of a sidecar's chain. A call holds its slot until it is over, however it ends; one whose client
leaves while it stands in line never reaches the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.outlook import Outlook
from tailrace.proxy.pace import Pace
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.reply import Reply


_THEIRS = (Whose.ENGINE, Whose.NETWORK)
_SURE = 2.0
"""Spreads by which a turn has to be likely: another worker may still be in time."""
_SLOWLY = 0.05


class Told(Protocol):
    """Who is told of calls that enter and leave: the engine's launcher, which tells a hung engine from an idle one.

    It hears of failed ones too, so that a dead engine is not taken for a live one until its next check.
    """

    def request_sent(self) -> None:
        """A call goes to the engine."""

    def request_over(self) -> None:
        """A call is over."""

    def request_failed(self) -> None:
        """The engine, or its connection, failed a call."""

    def bytes_heard(self) -> None:
        """Bytes of an answer came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """How many calls may be where, and for how long."""

    concurrency: int
    queue: int
    queue_timeout: float


class Gate(Plugin[GateConfig]):
    """One for the whole life of a sidecar: reloads change its `config`, not its counts."""

    Config = GateConfig

    def __init__(self, config: GateConfig, pace: Pace | None = None) -> None:
        super().__init__(config)
        self.told: Told | None = None
        self.changed: Callable[[], None] = _nothing
        self._pace = pace or Pace()
        self._outlook = Outlook()
        self._soonest = 0.0
        self._inside: dict[Call, float] = {}
        self._line: dict[Call, asyncio.Future[None]] = {}
        self._looked = 0.0

    @property
    def inside(self) -> int:
        """How many calls are at the engine."""
        return len(self._inside)

    @property
    def waiting(self) -> int:
        """How many calls stand in line."""
        return len(self._line)

    def resize(self, config: GateConfig) -> None:
        """Follow changed settings; nobody in line is sent away."""
        self.config = config
        self._let_in()

    async def on_request(self, call: Call) -> Reply | None:
        """Take a slot, or stand in line for one; raises Reject(503) where that is full or takes too long."""
        if call.route.local is not None:
            return None
        left = call.time.left_ns(time.monotonic_ns()) if call.time is not None else None
        if left is not None and left <= 0:
            raise self._busy("The time that the caller can wait is over.", len(self._line) + 1)
        if len(self._inside) < self.config.concurrency and not self._line:
            self._enter(call)
            return None
        if len(self._line) >= self.config.queue:
            raise self._busy("The worker has as many calls in line as it takes.", len(self._line) + 1)
        limit = self._patience(call, left)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line[call] = turn
        self.changed()
        try:
            async with call.waiting():
                await self._wait(call, turn, limit)
        finally:
            if self._line.pop(call, None) is not None:
                self.changed()
        return None

    def _patience(self, call: Call, left: int | None) -> float:
        """How long a call with so many nanoseconds may stand in line; raises Reject where its turn comes too late."""
        limit = self.config.queue_timeout
        if left is not None:
            # A turn is of no use without the time that the engine takes at least.
            limit = min(limit, left * 1e-9 - (self._soonest if call.stream else 0.0))
        if limit <= 0.0 or not self._comes(call, limit):
            raise self._busy("Its turn would come later than the caller can wait.", len(self._line) + 1)
        return limit

    def _comes(self, call: Call, seconds: float) -> bool:
        """Whether its turn is likely to come within so many seconds; True as long as nobody knows."""
        outlook = self._outlook
        if not outlook.known:
            return True
        now = asyncio.get_running_loop().time()
        if outlook.stale(now):
            outlook.look(list(self._inside.values()), now)
        due = self._due(call)
        before = sum([self._due(other) <= due for other in self._line])
        lacking = before + 1 + max(0, len(self._inside) - self.config.concurrency)
        return outlook.places(seconds, now, _SURE) >= lacking

    async def _wait(self, call: Call, turn: asyncio.Future[None], limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                await turn
        except TimeoutError:
            # The turn may have come in the same moment.
            if call not in self._inside:
                raise self._busy(f"No slot came free within {limit:g} s.", len(self._line)) from None

    def _busy(self, message: str, places: int) -> Reject:
        return Reject(
            503,
            "worker_overloaded",
            message,
            retry_after=self._pace.wait_for(places),
            whose=Whose.GATEWAY,
            kind="overloaded",
        )

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Give the slot to the next in line."""
        if call not in self._inside:
            return
        entered, now = self._inside.pop(call), asyncio.get_running_loop().time()
        self._pace.ended()
        self._outlook.ended(now - entered, now)
        self._learn(call)
        if self.told is not None:
            self.told.request_over()
            if outcome.fault is not None and outcome.fault.whose in _THEIRS:
                self.told.request_failed()
        self._let_in()
        self.changed()

    def _let_in(self) -> None:
        while self._line and len(self._inside) < self.config.concurrency:
            call = self._next()
            turn = self._line.pop(call)
            if not turn.done():
                self._enter(call)
                turn.set_result(None)

    def _next(self) -> Call:
        """Who is due first; those whom nothing is said of are due when they would be sent away, in order of arrival."""
        if not any(call.time is not None for call in self._line):
            return next(iter(self._line))
        return min(self._line, key=self._due)

    def _due(self, call: Call) -> int:
        moment = call.time.due_ns if call.time is not None else 0
        return moment or call.started_ns + int(self.config.queue_timeout * 1e9)

    def _learn(self, call: Call) -> None:
        """Note how soon streams begin at best: sooner at once, later bit by bit."""
        winner = None if call.race is None else call.race.winner
        if winner is not None and call.stream and winner.sent_ns and winner.first_content_ns:
            took = (winner.first_content_ns - winner.sent_ns) * 1e-9
            known = self._soonest
            self._soonest = min(took, known + _SLOWLY * (took - known)) if known else took

    def _enter(self, call: Call) -> None:
        self._inside[call] = asyncio.get_running_loop().time()
        if self.told is not None:
            self.told.request_sent()
        self.changed()

    def send_away(self, refusal: Callable[[], Reject]) -> None:
        """Refuse everybody in line: the engine is gone."""
        for turn in self._line.values():
            if not turn.done():
                turn.set_exception(refusal())

    def visit(self, now: float) -> None:
        """Tell whether answers still come, a few times a second rather than for every read."""
        if self.told is not None and any(_heard(call, self._looked) for call in self._inside):
            self.told.bytes_heard()
        self._looked = now


def _heard(call: Call, since: float) -> bool:
    for attempt in call.tries:
        connection = attempt.connection
        if connection is not None and connection.got_bytes and connection.touched > since:
            return True
    return False


def _nothing() -> None:
    return
