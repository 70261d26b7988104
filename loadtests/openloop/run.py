"""One run: sends each request when it is due, whatever became of those before it, and keeps what was seen."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from openloop.alarm import Alarm, Heartbeat
from openloop.connections import Connections, Endpoint
from openloop.options import Options
from openloop.record import Record
from openloop.requests import RequestWriter
from openloop.schedule import NS, Arrival, arrivals

BEAT = NS // 100


@dataclass(slots=True)
class Result:
    """What a run saw. `phase_starts` are the moments at which the phases began, and the last one's end."""

    records: list[Record]
    lags: list[int]
    phase_starts: list[int]
    ended: int
    interrupted: bool
    cpu_seconds: float


class Run:
    """A run in progress; its counters may be read at any time."""

    def __init__(self, options: Options, endpoint: Endpoint, on_second: Callable[["Run"], None] | None = None) -> None:
        self._options = options
        self._on_second = on_second
        self._loop = asyncio.get_running_loop()
        self._prompts = Random(f"{options.seed}/prompt-lengths")
        self._answers = Random(f"{options.seed}/answer-lengths")
        self._writer = RequestWriter(
            options.dialect,
            host=options.host,
            path=options.path,
            model=options.model,
            headers=options.headers,
            stream=options.stream,
            shared_prefix=options.shared_prefix,
            longest_prompt=options.prompt.most,
            seed=options.seed,
        )
        self._connections = Connections(
            endpoint,
            options.dialect,
            stream=options.stream,
            keepalive=options.keepalive,
            limit=options.connections,
            timeout=round(options.timeout * NS),
            on_finished=self._on_finished,
        )
        self._due: Iterator[Arrival] = arrivals(
            options.phases, Random(f"{options.seed}/arrivals"), poisson=options.poisson
        )
        self._next: Arrival | None = None
        self._alarm = Alarm(self._loop, self._dispatch)
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._start = 0
        self._seconds_shown = 0
        self.records: list[Record] = []
        self.outcomes: Counter[str] = Counter()
        self.finished = 0
        self.interrupted = False

    async def measure(self) -> Result:
        """Run to the end: until the last request that was due has its outcome."""
        cpu = time.process_time()
        self._start = time.monotonic_ns() + NS // 20
        self._loop.set_exception_handler(self._on_failure)
        heartbeat = Heartbeat(self._loop, BEAT, self._on_beat)
        self._take_next()
        try:
            await self._done
        finally:
            self._alarm.close()
            heartbeat.close()
            await self._connections.close()
        return Result(
            records=self.records,
            lags=heartbeat.lags,
            phase_starts=self._phase_starts(),
            ended=time.monotonic_ns(),
            interrupted=self.interrupted,
            cpu_seconds=time.process_time() - cpu,
        )

    def interrupt(self) -> None:
        """Send nothing more and give up on what is open; `measure` returns with what there is."""
        self.interrupted = True
        self._next = None
        self._connections.interrupt(time.monotonic_ns())
        self._end_if_done()

    @property
    def elapsed(self) -> float:
        return (time.monotonic_ns() - self._start) / NS

    @property
    def in_flight(self) -> int:
        return len(self.records) - self.finished

    def _take_next(self) -> None:
        self._next = next(self._due, None)
        if self._next is None:
            self._end_if_done()
        else:
            self._alarm.set(self._start + self._next.offset)

    def _dispatch(self) -> None:
        now = time.monotonic_ns()
        while self._next is not None and self._start + self._next.offset <= now:
            self._send(self._next)
            self._next = next(self._due, None)
        if self._next is not None:
            self._alarm.set(self._start + self._next.offset)
        else:
            self._end_if_done()

    def _send(self, arrival: Arrival) -> None:
        options = self._options
        record = Record(
            number=len(self.records),
            phase=arrival.phase,
            measured=options.phases[arrival.phase].measured,
            scheduled=self._start + arrival.offset,
            prompt_tokens=options.prompt.draw(self._prompts),
            max_tokens=options.max_tokens.draw(self._answers),
        )
        self.records.append(record)
        self._connections.send(record, self._writer.write(record.number, record.prompt_tokens, record.max_tokens))

    def _on_finished(self, record: Record) -> None:
        self.finished += 1
        self.outcomes[record.error_kind() or str(record.outcome)] += 1
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._next is None and self.finished == len(self.records) and not self._done.done():
            self._done.set_result(None)

    def _on_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault in a callback ends the run: a generator that stopped sending must not look like a quiet one."""
        if not self._done.done():
            self._done.set_exception(context.get("exception") or RuntimeError(context["message"]))

    def _on_beat(self, now: int) -> None:
        self._connections.expire(now)
        seconds = (now - self._start) // NS
        if self._on_second is not None and seconds > self._seconds_shown:
            self._seconds_shown = seconds
            self._on_second(self)

    def _phase_starts(self) -> list[int]:
        starts = [self._start]
        for phase in self._options.phases:
            starts.append(starts[-1] + round(phase.seconds * NS))
        return starts
