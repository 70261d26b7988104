"""What speaks for a worker's being gone: how long nothing has come from it that was due.

Seconds here are awake ones: those in which this process was able to hear. A stall of its own loop is nobody's silence.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tailrace.proxy.sweep import TICK
from tailrace.proxy.watch.reach import Reach

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.sink import Sink
    from tailrace.proxy.upstream import UpstreamConnection

BEATS: Final = 3
"""Signs of life that fail to come."""
ENOUGH: Final = 3
"""Streams on which nothing comes: fewer may well be engines that think."""
SHORTEST: Final = 0.15
GAPS: Final = 4
"""Times its usual pause between two tokens, for which a worker may be silent."""
LONGEST: Final = 2.0
"""What false alarms raise the limit to, at most."""
PAROLE: Final = 5.0
"""Seconds after which a worker whose streams fell silent, and that owes nothing any more, is tried again."""
QUIET: Final = 0.7
"""Seconds after which a worker that promises no signs of life is asked for one: readings of its metrics come sooner."""
BROKEN: Final = 2
"""Connections that break within a moment: one may be a single answer's misfortune."""
_MOMENT: Final = 0.1
_EARLY: Final = 0.005  # what timers may fire too early
_SAME: Final = 1.2 * TICK
_LEARN: Final = 0.1
_FORGET: Final = 0.999


class Evidence(StrEnum):
    """What speaks against a worker."""

    HEARTBEAT = "heartbeat"
    STREAMS = "streams"
    CONNECTION = "connection"
    HOST = "host"


class Vigil:
    """Keeps account of one worker's silence; `evidence` is what speaks against it now."""

    __slots__ = (
        "_break",
        "_broken",
        "_gap",
        "_owing",
        "_patience",
        "_quiet",
        "_relay",
        "_rested",
        "_sample",
        "_seen",
        "beat",
        "evidence",
        "heard",
        "lost",
        "moved",
        "reach",
        "since",
        "told",
        "verified",
        "worker",
    )

    def __init__(self, worker: Worker, awake: float, now: float) -> None:
        self.worker = worker
        self.reach = Reach(worker, now)
        self.beat = 0.0
        """Seconds between signs of life that its sidecar has promised; 0 where nobody did."""
        self.heard = awake
        self.evidence: set[Evidence] = set()
        self.since: float | None = None
        """When evidence began, None where there is none."""
        self.moved = False
        """Whether what waits there has been told to go."""
        self.lost = False
        self.told = False
        """Whether what runs there has been told that it is lost."""
        self.verified = -math.inf
        self._sample: UpstreamConnection | None = None
        self._relay: Sink | None = None
        self._seen = 0.0
        self._gap = TICK
        self._patience = SHORTEST
        self._owing = 0
        self._quiet = self._rested = 0.0
        self._break = awake
        self._broken = 0

    @property
    def limit(self) -> float:
        """Seconds of silence on its streams that are too many.

        A pause below a tick cannot be told from a tick, and is short enough for the floor.
        """
        usual = GAPS * self._gap if self._gap > _SAME else 0.0
        return max(SHORTEST, usual, self._patience)

    def silence(self, evidence: Evidence, awake: float) -> float:
        """For how long nothing has been heard, by one kind of evidence."""
        if evidence is Evidence.HEARTBEAT:
            return awake - self.heard
        if evidence is Evidence.HOST:
            return self.reach.mute
        return self._quiet if evidence is Evidence.STREAMS else 0.0

    def look(self, last: float, passed: float, awake: float) -> None:
        """Judge the time since the tick at `last`, of which `passed` seconds count; `awake` is the time now."""
        if self._streams_move(last):
            self._streams_are_heard(awake)
            self.reach.heard = last
        elif self._owing:
            self._quiet += passed
        else:
            self._quiet = 0.0
        if self._patience > SHORTEST:
            self._patience *= _FORGET
        if self.beat and awake - self.heard > BEATS * self.beat - _EARLY:
            self.evidence.add(Evidence.HEARTBEAT)
        if self._owing >= ENOUGH and self._quiet > self.limit - _EARLY:
            self.evidence.add(Evidence.STREAMS)
            self._rested = 0.0
        elif not self._owing and Evidence.STREAMS in self.evidence:
            # Where it owes nothing, nothing can be heard of it.
            self._rested += passed
            if self._rested > PAROLE:
                self.evidence.discard(Evidence.STREAMS)

    def look_out(self, now: float, after: float) -> None:
        """Judge whether its host is there, which is asked for a sign where none has come in `after` seconds."""
        reach = self.reach
        reach.look(now)
        if reach.silent:
            self.evidence.add(Evidence.HOST)
        elif self.evidence:
            self.evidence.discard(Evidence.HOST)
        if not self.beat:
            if self._owing and self._quiet > self.limit - _EARLY:
                reach.knock(now, QUIET)
            elif now - reach.heard > after - _EARLY:
                reach.knock(now, after)

    def broke(self, awake: float) -> bool:
        """An exchange's connection broke; whether too many did at once."""
        if awake - self._break > _MOMENT:
            self._break, self._broken = awake, 0
        self._broken += 1
        return self._broken >= BROKEN

    def _streams_move(self, last: float) -> bool:
        """Whether a stream got bytes since the tick at `last`; counts those that should, where none did."""
        sample = self._sample
        if sample is not None:
            if sample.sink is not self._relay:
                self._sample = self._relay = None
            elif sample.touched >= last:
                self._learn(sample.touched)
                return True
        self._owing = 0
        for connection in self.worker.connections.busy:
            sink = connection.sink
            if sink is None or not sink.owes:
                continue
            if self._sample is None:
                self._sample, self._relay, self._seen = connection, sink, connection.touched
            if connection.touched >= last:
                return True
            self._owing += 1
        return False

    def _learn(self, touched: float) -> None:
        # One long pause, such as of a stream that its engine set aside, does not make what is usual.
        gap = min(touched - self._seen, GAPS * self._gap)
        self._seen = touched
        if gap > 0.0:
            self._gap += _LEARN * (gap - self._gap)

    def _streams_are_heard(self, awake: float) -> None:
        if Evidence.STREAMS in self.evidence:
            # A false alarm: this worker may be silent for longer than was thought.
            self._patience = min(max(self._patience, 2 * self._quiet), LONGEST)
            self.evidence.discard(Evidence.STREAMS)
        self.evidence.discard(Evidence.HEARTBEAT)
        self.heard = awake
        self._quiet = 0.0
