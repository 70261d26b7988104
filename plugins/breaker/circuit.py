"""What one process holds of one worker: the verdict of the host, a probe under way, and how far it is let in again."""

from __future__ import annotations

import random
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from tailrace.plugins.breaker.board import CLEAN, Verdict
from tailrace.plugins.breaker.record import Record
from tailrace.proxy.repeatable import repeatable

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker

SECOND: Final = 1_000_000_000
FIRST_SHARE: Final = 0.1
_STEP: Final = 1.6
STEPS: Final = 5
"""From the first share of its calls to all of them."""
_GOOD_PACE: Final = 2.0


class Why(IntEnum):
    """What changed a verdict; also a metric label."""

    NOTHING = 0
    FAULTS = 1
    SUCCESS = 2
    STALLS = 3
    SLOW = 4
    PROBE = 5
    AGAIN = 6


class Circuit:
    """A worker's. While it is open the worker is barred; `token` is the right of this process to probe it."""

    __slots__ = ("probe", "record", "rests_until", "share", "slot", "stepped", "token", "token_at", "verdict", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.record = Record()
        self.slot: int | None = None
        self.verdict: Verdict = CLEAN
        self.token = False
        self.token_at = 0
        self.rests_until = 0
        self.probe: tuple[Call, Attempt] | None = None
        self.share = 1.0
        """Of the calls that it might get, while it is let in again."""
        self.stepped = 0

    @property
    def waits(self) -> bool:
        """Whether the next fitting call is its probe: not while another watch bars it."""
        return self.token and self.probe is None and not self.worker.bars

    def wants(self, call: Call) -> bool:
        """Whether a call may go to it now: as its probe, or by its share."""
        if self.waits:
            return not call.tries and repeatable(call)
        return random.random() < self.share

    def ramp(self, now: int) -> None:
        """Begin to let it in."""
        self.share = FIRST_SHARE
        self.stepped = now

    def step(self, ratio: float | None, slow: float, now: int, length: float) -> bool:
        """A call went well there, at so many times the usual pace; True once it gets all of its calls."""
        if ratio is not None and ratio > slow:
            self.share = max(FIRST_SHARE, self.share / _STEP)
            self.stepped = now
        elif (ratio is None or ratio <= _GOOD_PACE) and now - self.stepped >= length * SECOND / STEPS:
            self.share *= _STEP
            self.stepped = now
        return self.share >= 1.0
