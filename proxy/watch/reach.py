"""Whether a worker's host is within reach: its kernel acknowledges what it is sent, whatever its engine does meanwhile.

The kernel of this machine is asked for that only where nothing has been heard of a worker for a moment and something
was sent to it, of a FEW connections at a tick; a request that has arrived is not asked for again.
"""

from __future__ import annotations

import math
from random import random
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.pool import ConnectionPool

LATE: Final = 0.1
"""Seconds without an acknowledgement that are too many: kernels delay it by 40 ms at most."""
TRIPS: Final = 4
"""Round trips to the worker that are added to them."""
FEW: Final = 4
MEASURED: Final = 5.0
"""Seconds from one measurement of the way to it to the next: who is taken to be far gets no calls to show better."""
_EARLY: Final = 0.005  # what timers may fire too early


class Sent(Protocol):
    """A request, or an attempt at a connection; `sent` is the second in which it was sent."""

    @property
    def sent(self) -> float:
        """Infinite where it was not."""

    def acknowledged(self) -> tuple[bool, float] | None:
        """What the kernel says of it: see `tcp.acknowledged`."""

    def settle(self) -> None:
        """It has arrived."""


class Reach:
    """Keeps account of one worker's host; `silent` says that it acknowledges nothing, `since` when that was found."""

    __slots__ = ("_knocked", "_measured", "_worker", "heard", "mute", "silent", "since")

    def __init__(self, worker: Worker, now: float) -> None:
        self._worker = worker
        self.heard = now
        """The second of the last sign of it, of whatever kind, or one up to a tick before."""
        self.silent = False
        self.since = 0.0
        self.mute = 0.0
        """Seconds without any sign, when that was found."""
        self._knocked = now
        # Not all workers at the same tick.
        self._measured = now - random() * MEASURED

    def look(self, now: float) -> None:
        """Ask what became of what was sent; what is silent stays so until there is a sign of it."""
        pool = self._worker.connections
        if now - self._measured >= MEASURED:
            self._measured = now
            pool.measure()
        if pool.reached > self.heard:
            self.heard = pool.reached
        if pool.round_trip and (pool.busy or pool.openings):
            limit = LATE + TRIPS * pool.round_trip - _EARLY
            if now - self.heard >= limit and self._unanswered(pool, now, limit) and not self.silent:
                self.silent, self.since, self.mute = True, now, now - self.heard
                # The attempt may be what was lost: a second one will hardly be.
                self._knock(pool, now)
        if self.silent and self.heard >= self.since:
            self.silent = False

    def knock(self, now: float, after: float) -> None:
        """See whether anybody is there, unless that is under way or was done in the last `after` seconds."""
        pool = self._worker.connections
        if now - self._knocked < after - _EARLY or not pool.round_trip or pool.openings:
            return
        if not self._worker.standing.dead:
            self._knock(pool, now)

    def _knock(self, pool: ConnectionPool, now: float) -> None:
        self._knocked = now
        pool.knock()

    def _unanswered(self, pool: ConnectionPool, now: float, limit: float) -> bool:
        """Whether something that was sent `limit` seconds ago is not acknowledged, and nothing was heard since."""
        waiting: list[Sent] = list(pool.openings)
        heard = max(self.heard, pool.rested)
        for connection in pool.busy:
            if connection.got_bytes:
                heard = max(heard, connection.touched)
            elif connection.unsettled:
                waiting.append(connection)
        self.heard = heard
        # What was sent long before the last sign of a host was lost on the way, if it was: that says nothing of now.
        waiting = [sent for sent in waiting if sent.sent + limit / 2 >= heard]
        unanswered = -math.inf
        for sent in sorted(waiting, key=_when)[:FEW]:
            due = now - sent.sent >= limit
            if not due and unanswered < 0:
                break  # the others are asked for a second opinion only
            word = sent.acknowledged()
            if word is None:
                sent.settle()
                continue
            arrived, silence = word
            self.heard = max(self.heard, now - silence)
            if arrived:
                sent.settle()
            elif due:
                unanswered = sent.sent
        return now - self.heard >= limit and unanswered + limit / 2 >= self.heard


def _when(sent: Sent) -> float:
    return sent.sent
