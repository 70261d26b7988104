"""What was learnt of how soon a worker answers, by the size of the prompt, and what it has before it now.

The times are those of a call that finds nothing before it ("alone"): what stood before a call that was observed is
taken off, what stands before the next one is added. They jump to a time above what was known and fade in `decay`,
towards what is usual in the pool: a worker that was slow, and gets no calls for it, is tried again.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final

from tailrace.plugins.route.usual import ROWS, SIZES, Usual

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker

_LEAST: Final = 0.1
"""Share of what was observed that is a call's own in any case, whatever stood before it."""
_SLOWEST: Final = 50.0
_PINNED: Final = 3
"""So many reports that find the highest number running, and others waiting."""
CROWDING: Final = 0.02
"""What a call that is under way adds to the time of another: its token is made in the same step."""
_FADES: Final = 2.0 / 0.6931471805599453
"""A penalty's time constant: half of it is gone in two seconds."""


class Tempo:
    """One worker's; `backlog` are the tokens of prompts, of `pending` calls of ours, that have no content yet."""

    __slots__ = (
        "_alone",
        "_at",
        "_fault",
        "_fault_at",
        "_full",
        "_heard",
        "_most",
        "_slow",
        "_slow_at",
        "backlog",
        "hidden",
        "mark",
        "pending",
        "slots",
        "usual",
        "waiting",
    )

    def __init__(self, usual: Usual, mark: int) -> None:
        self.usual = usual
        self.mark = mark
        """Bits that tell the worker from others."""
        self._alone = [0.0] * ROWS
        self._at = [0.0] * ROWS
        self._slow = 1.0
        self._slow_at = 0.0
        self._fault = 0.0
        self._fault_at = 0.0
        self._heard = -1.0
        self._full = self._most = 0
        self.backlog = 0
        self.pending = 0
        self.hidden = 0.0
        """Calls of others under way there, by its last report, and those of them that were `waiting`."""
        self.waiting = 0.0
        self.slots = 0.0
        """How many calls it lets in at once, the next ones wait for their ends; 0 is unknown."""

    def hear(self, worker: Worker) -> None:
        """Tell what others have there from what it reports; what is not known is as usual, which is not nothing."""
        standing, usual = worker.standing, self.usual
        running, waiting = standing.running, standing.waiting
        if running is None and waiting is None:
            self.hidden, self.waiting = usual.hidden, usual.waiting
            self._heard = -1.0
            return
        # Once for each report: what we send it afterwards is not among what it has counted.
        self._heard = -1.0 if standing.sampled is None else standing.sampled
        queued = float(waiting or 0)
        self.slots = float(standing.concurrency) if standing.concurrency else self._slots_shown(running or 0, queued)
        self.waiting = max(queued - self.pending, 0.0)
        self.hidden = max((running or 0) + queued - worker.inflight, self.waiting)
        usual.heard(self.hidden, self.waiting)

    def _slots_shown(self, running: int, queued: float) -> float:
        """How many calls an engine lets in that does not say so: never more have run, and others wait, several times.

        Calls wait for the prompts before them, too, but then fewer run as a rule.
        """
        if running > self._most:
            self._most, self._full = running, 0
        if queued > 0.0 and running == self._most:
            self._full += 1
        usual = self.usual
        if self._full >= _PINNED:
            usual.slots = float(self._most)
            return usual.slots
        # Engines of one pool are mostly alike.
        return usual.slots if self._most <= usual.slots else 0.0

    def slowness(self, now: float) -> float:
        """How many times as long as usual its calls take."""
        return 1.0 + (self._slow - 1.0) * exp((self._slow_at - now) / self.usual.decay)

    def alone(self, row: int, now: float) -> float:
        """Seconds to first content of a call that finds nothing before it."""
        usual = self.usual.alone_of(row)
        at = self._at[row]
        if at <= 0.0:
            return usual * self.slowness(now)
        return usual + (self._alone[row] - usual) * exp((at - now) / self.usual.decay)

    @property
    def ahead(self) -> float:
        """Tokens of prompts that stand before a call."""
        return self.backlog + self.waiting * self.usual.prompt

    def predict(self, worker: Worker, row: int, now: float) -> float:
        """Seconds until a call that is sent to it now has its first content."""
        standing = worker.standing
        if standing.sampled != self._heard or standing.running is None:
            self.hear(worker)
        usual = self.usual
        decay = usual.decay
        slow = 1.0 + (self._slow - 1.0) * exp((self._slow_at - now) / decay)
        at = self._at[row]
        known = usual.alone[row] or usual.alone_of(row)
        alone = known * slow if at <= 0.0 else known + (self._alone[row] - known) * exp((at - now) / decay)
        load = worker.inflight + self.hidden
        seconds = (
            alone * (1.0 + CROWDING * load)
            + usual.slope * slow * (self.backlog + self.waiting * usual.prompt)
            + self._turn(load)
            + worker.connections.round_trip
        )
        if self._fault > 0.0:
            seconds += self._fault * exp((self._fault_at - now) / _FADES)
        return seconds

    def observe(self, row: int, tokens: int, ahead: float, load: float, seconds: float, now: float) -> float:
        """A call had its first content after `seconds`, with `ahead` and `load` as they were when it was sent.

        Gives what of it was the call's own.
        """
        usual = self.usual
        slow = self.slowness(now)
        alone = self._own(ahead, load, slow, seconds)
        self._rise(row, alone, now, falls=True)
        usual.observe(row, alone, now)
        ratio = min(alone / usual.alone_of(row), _SLOWEST)
        self._slow = ratio if ratio > slow else slow + (ratio - slow) * self._freshness(self._slow_at, now)
        self._slow_at = now
        if row < SIZES:
            usual.fit(tokens, ahead, seconds / max(slow, 1.0))
        return alone

    def waited(self, row: int, ahead: float, load: float, seconds: float, now: float) -> None:
        """A call would have taken longer than `seconds`: that is the least that is known of it."""
        slow = self.slowness(now)
        alone = self._own(ahead, load, slow, seconds)
        if alone > self.alone(row, now):
            self._rise(row, alone, now, falls=False)
            ratio = min(alone / self.usual.alone_of(row), _SLOWEST)
            if ratio > slow:
                self._slow, self._slow_at = ratio, now

    def blame(self, seconds: float, now: float) -> None:
        """A call has failed there."""
        left = self._fault * exp((self._fault_at - now) / _FADES)
        self._fault, self._fault_at = max(left, seconds), now

    def _turn(self, load: float) -> float:
        """Seconds until a call behind so many others has its turn, where all that run at once do."""
        slots = self.slots
        return (load + 1.0 - slots) * self.usual.busy / slots if 0.0 < slots <= load else 0.0

    def _own(self, ahead: float, load: float, slow: float, seconds: float) -> float:
        """What of `seconds` was the call's own."""
        usual = self.usual
        own = seconds - usual.slope * slow * ahead - self._turn(load)
        return max(own, seconds * _LEAST) / (1.0 + CROWDING * load)

    def _rise(self, row: int, alone: float, now: float, *, falls: bool) -> None:
        known = self.alone(row, now)
        if alone < known:
            if not falls:
                return
            alone = known + (alone - known) * self._freshness(self._at[row], now)
        self._alone[row], self._at[row] = alone, now

    def _freshness(self, at: float, now: float) -> float:
        """The weight of an observation beside what is known from `at`."""
        return 1.0 if at <= 0.0 else 1.0 - exp((at - now) / self.usual.decay)
