"""Workers whose silence a test makes up, on a clock that it moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tailrace.proxy.address import Address
from tailrace.proxy.fault import Fault
from tailrace.proxy.fleet import SILENT, SUSPECT, Pool, Worker
from tailrace.proxy.sink import Sink
from tailrace.proxy.sweep import TICK, Clock
from tailrace.proxy.watch.silence import Silence

BEAT = 0.1


class Stream(Sink):
    """A stream that has begun; `doubts` are those it was told of, each with whether all is lost."""

    def __init__(self) -> None:
        self.reads = True
        self.doubts: list[tuple[str, bool]] = []

    @property
    def owes(self) -> bool:
        return self.reads

    def on_doubt(self, fault: Fault, lost: bool) -> None:
        self.doubts.append((fault.kind, lost))


class Waiting(Stream):
    """A call that has got nothing yet."""

    @property
    def owes(self) -> bool:
        return False


class Line:
    """A connection with an exchange on it; `arrived` and `last` are what the kernel says of it, each time it is asked.

    Nothing is asked of one that is not `unsettled`.
    """

    def __init__(self, sink: Sink, now: Callable[[], float]) -> None:
        self.sink: Any = sink
        self.touched = self.sent = self.last = now()
        self.got_bytes = sink.owes
        self.unsettled = False
        self.arrived: bool | None = True
        self.asked = 0
        self._now = now

    def doubt(self, fault: Fault, lost: bool) -> None:
        self.sink.on_doubt(fault, lost)

    def acknowledged(self) -> tuple[bool, float] | None:
        self.asked += 1
        return None if self.arrived is None else (self.arrived, self._now() - self.last)

    def settle(self) -> None:
        self.unsettled = False
        self.sent = math.inf

    def acknowledge(self) -> None:
        self.arrived, self.last = True, self._now()


class HostPool:
    """As much of a worker's connections as is looked at; who knocks is answered as long as `there`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.busy: set[Line] = set()
        self.connecting: list[Any] = []
        self.openings: set[Line] = set()
        self.broken: Any = None
        self.reached = self.rested = self.round_trip = 0.0
        self.there = True
        self.knocks = self.measured = 0
        self._now = now

    def measure(self) -> None:
        self.measured += 1

    def knock(self) -> None:
        self.knocks += 1
        if self.there:
            self.reached = self._now()
        else:
            self.opening()

    def opening(self) -> Line:
        """An attempt at a connection that nobody answers."""
        attempt = Line(Waiting(), self._now)
        attempt.arrived, attempt.last = False, -math.inf
        self.openings.add(attempt)
        return attempt


def doubts(line: Line) -> list[tuple[str, bool]]:
    """What whoever is on a connection was told of its worker."""
    doubted: list[tuple[str, bool]] = line.sink.doubts
    return doubted


class Hosts:
    """A process that looks at some workers, the first of which is `worker`."""

    def __init__(self, count: int = 2, after: float = 1.0) -> None:
        self.now = 100.0
        self.sweep: Any = SimpleNamespace(
            loop=SimpleNamespace(time=lambda: self.now), clock=Clock(self.now), ticking=[]
        )
        self.workers = [self._host(port) for port in range(1, count + 1)]
        self.worker = self.workers[0]
        self.pool = Pool("all", self.workers)
        for worker in self.workers:
            worker.pools.append(self.pool)
        self.pool.rebuild()
        self.counted: list[str] = []
        self.verified: list[Worker] = []
        self.silence = Silence(self.sweep, self)
        self.silence.follow(self.workers, after)

    def _host(self, port: int) -> Worker:
        pool: Any = HostPool(lambda: self.now)
        return Worker(Address.parse(f"http://127.0.0.1:{port}"), pool)

    def suspected(self, worker: Worker, evidence: str) -> None:
        self.counted.append(evidence)

    def verify(self, worker: Worker) -> None:
        self.verified.append(worker)

    def stream(self, worker: Worker | None = None) -> Line:
        """A stream whose first content is there."""
        return self._line(Stream(), worker)

    def waiting(self) -> Line:
        return self._line(Waiting())

    def request(self, *, arrives: bool | None) -> Line:
        """A call of which nothing has come yet, and whose request arrives or not; None: nobody knows."""
        line = self._line(Waiting())
        line.unsettled, line.arrived, line.last = True, arrives, self.now - 3.0
        return line

    def _line(self, sink: Sink, worker: Worker | None = None) -> Line:
        line = Line(sink, lambda: self.now)
        (worker or self.worker).connections.busy.add(line)  # type: ignore[arg-type]
        return line

    def on_a_network(self, round_trip: float = 0.0005) -> HostPool:
        """Have the time to the workers and back known, as it is of TCP; the worker's connections."""
        for worker in self.workers:
            worker.connections.round_trip = round_trip
        pool: Any = self.worker.connections
        return pool

    def gone(self, *lines: Line) -> None:
        for line in lines:
            line.sink = None
            self.worker.connections.busy.discard(line)  # type: ignore[arg-type]

    def say(self, *lines: Line) -> None:
        for line in lines:
            line.touched = self.sweep.clock.now

    def tick(self, count: int = 1, late: float = 0.0, *, beats: bool = False) -> None:
        """Let time pass; with `beats` a sign of life comes with every second tick."""
        for number in range(count):
            if beats and not number % 2:
                self.silence.heard(self.worker)
            self.now += TICK + late
            self.sweep.clock.now = self.now
            for tick in self.sweep.ticking:
                tick(self.now)

    def flow(self, ticks: int, *lines: Line, every: int = 1) -> None:
        """Let lines say something at every so many ticks."""
        for number in range(ticks):
            if not number % every:
                self.say(*lines)
            self.tick()

    @property
    def suspect(self) -> bool:
        return SUSPECT in self.worker.bars

    @property
    def given_up(self) -> bool:
        return SILENT in self.worker.bars
