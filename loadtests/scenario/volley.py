"""Sends every request when it is due, over whichever gateways a balancer would use, and keeps what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from random import Random

from openloop.alarm import Alarm, Heartbeat
from openloop.connections import Connections, Endpoint
from openloop.dialects import DIALECTS
from openloop.record import Record
from openloop.schedule import NS

from scenario.plan import Phase
from scenario.prompts import Prompts
from scenario.shot import Shot

BEAT = NS // 100
LIMIT = 60 * NS
MOST_CONNECTIONS = 2000


@dataclass(slots=True)
class Act:
    """A phase as it was played: some come more than once."""

    phase: Phase
    start: int
    end: int
    struck: int = 0
    """When its first event had happened."""
    notes: dict[str, float] = field(default_factory=dict)
    """Figures that its events have measured, in milliseconds."""


def acts_of(phases: Sequence[Phase]) -> list[Act]:
    """The phases in their order, as nanoseconds from the start."""
    acts: list[Act] = []
    start = 0
    for phase in phases:
        for _ in range(phase.times):
            end = start + round(phase.seconds * NS)
            acts.append(Act(phase, start, end))
            start = end
    return acts


class Volley:
    """The load of a whole scenario. `rates`: the requests a second that a share of 1 means, by kind of request."""

    def __init__(
        self, acts: Sequence[Act], prompts: Mapping[str, Prompts], rates: Mapping[str, float], seed: int
    ) -> None:
        self.acts = acts
        self.shots: list[Shot] = []
        self.lags: list[int] = []
        self.start = 0
        self._prompts = prompts
        self._due = merge(*(self._arrivals(name, rates[name], seed) for name in prompts))
        self._orders = {name: _rounds(prompts[name].count, Random(f"{seed}/{name}/order")) for name in prompts}
        self._doors: list[tuple[Connections, Callable[[], bool]]] = []
        self._turn = 0
        self._open = 0
        self._next: tuple[int, str, int] | None = None
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()

    def add_door(self, address: str, in_rotation: Callable[[], bool]) -> None:
        """A gateway that requests may go to."""
        host, _, port = address.rpartition(":")
        connections = Connections(
            Endpoint(host, int(port), host, None),
            DIALECTS["chat"],
            stream=True,
            keepalive=True,
            limit=MOST_CONNECTIONS,
            timeout=LIMIT,
            on_finished=self._on_finished,
        )
        self._doors.append((connections, in_rotation))

    async def fire(self) -> None:
        """Send everything; returns when the last request has its outcome."""
        heartbeat = Heartbeat(self._loop, BEAT, self._on_beat)
        self._alarm = Alarm(self._loop, self._dispatch)
        self.start = time.monotonic_ns() + NS // 20
        self._take_next()
        try:
            await self._done
        finally:
            self._alarm.close()
            heartbeat.close()
            self.lags = heartbeat.lags
            for connections, _ in self._doors:
                connections.interrupt(time.monotonic_ns())
                await connections.close()

    def _arrivals(self, name: str, rate: float, seed: int) -> Iterator[tuple[int, str, int]]:
        """(when, which load, in which act), independent of every answer."""
        random = Random(f"{seed}/{name}/arrivals")
        for number, act in enumerate(self.acts):
            wanted = act.phase.load.get(name, 0.0) * rate
            due = float(act.start)
            while wanted > 0 and (due := due + random.expovariate(wanted) * NS) < act.end:
                yield round(due), name, number

    def _take_next(self) -> None:
        self._next = next(self._due, None)
        if self._next is not None:
            self._alarm.set(self.start + self._next[0])
        self._end_if_done()

    def _dispatch(self) -> None:
        now = time.monotonic_ns()
        while self._next is not None and self.start + self._next[0] <= now:
            self._send(*self._next)
            self._next = next(self._due, None)
        if self._next is not None:
            self._alarm.set(self.start + self._next[0])
        self._end_if_done()

    def _send(self, offset: int, name: str, act: int) -> None:
        prompt = next(self._orders[name])
        prompts = self._prompts[name]
        shot = Shot(
            number=len(self.shots),
            phase=act,
            measured=self.acts[act].phase.measured,
            scheduled=self.start + offset,
            prompt_tokens=0,
            max_tokens=prompts.lengths[prompt],
            load=name,
            prompt=prompt,
            door=self._door(),
        )
        shot.listener = shot.hear
        self.shots.append(shot)
        self._open += 1
        self._doors[shot.door][0].send(shot, prompts.request(prompt))

    def _door(self) -> int:
        """In turn, as a balancer that looks at their health, and asks all where nobody is healthy."""
        first = self._turn
        for step in range(1, len(self._doors) + 1):
            self._turn = (first + step) % len(self._doors)
            if self._doors[self._turn][1]():
                return self._turn
        self._turn = (first + 1) % len(self._doors)
        return self._turn

    def _on_finished(self, record: Record) -> None:
        record.listener = None  # it holds the record: the garbage collector is off
        self._open -= 1
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._next is None and not self._open and not self._done.done():
            self._done.set_result(None)

    def _on_beat(self, now: int) -> None:
        for connections, _ in self._doors:
            connections.expire(now)


def _rounds(count: int, random: Random) -> Iterator[int]:
    """Every number once in each round, in a new order each time."""
    while True:
        numbers = list(range(count))
        random.shuffle(numbers)
        yield from numbers
