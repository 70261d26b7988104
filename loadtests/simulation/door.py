"""The gateway's side: its own workers, pool, chain and choice, with a call that has no client and no socket.

`tailrace.proxy.choosing` draws and chooses, the `route` plugin scores and learns: what is simulated lies around them.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import orjson
from tailrace.plugins.route import Config, Route
from tailrace.plugins.route.plugin import TailRoute
from tailrace.proxy.address import Address
from tailrace.proxy.choosing import agreed, candidates_for, choose
from tailrace.proxy.fleet import ModelEntry, Pool, Worker
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.pipeline import Link, Pipeline

from simulation.clock import VirtualClock
from simulation.engine import Engine, Work

REPORTS = 0.5


@dataclass
class Ask:
    """One request: its messages as they are sent, and what it is to an engine."""

    messages: list[dict[str, str]]
    parts: list[tuple[int, int]]
    answer_tokens: int
    session: str | None = None

    @property
    def raw(self) -> bytes:
        """The body."""
        return orjson.dumps({"model": "m", "messages": self.messages, "stream": True})


class StandInCall:
    """What the choice and the plugin see of a call."""

    stream = True
    body = None
    pinned = None
    route = SimpleNamespace(name="chat")

    def __init__(self, raw: bytes, headers: dict[bytes, bytes], entry: ModelEntry, pipeline: Pipeline) -> None:
        self.raw = raw
        self.head = headers
        self.entry = entry
        self.chain = SimpleNamespace(pipeline=pipeline)
        self.tries: list[Any] = []
        self._kept: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        return self._kept[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._kept[key] = value

    def __contains__(self, key: Any) -> bool:
        return key in self._kept


@dataclass
class Seen:
    """What became of the calls."""

    first_content: list[float] = field(default_factory=list)
    """Seconds that it took."""
    waiting: dict[int, float] = field(default_factory=dict)
    """Since when those have waited that have none."""
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Door:
    """One gateway in front of the engines."""

    def __init__(self, clock: VirtualClock, engines: list[Engine], config: Config, *, reports: bool = True) -> None:
        self.clock = clock
        self.engines = engines
        nowhere = SimpleNamespace(round_trip=0.0005)
        addresses = [Address.parse(f"http://10.0.0.{number + 1}:8000") for number in range(len(engines))]
        self.workers = [Worker(address, nowhere) for address in addresses]  # type: ignore[arg-type]
        self.pool = Pool("p", self.workers)
        self.entry = ModelEntry("m", self.pool, "m")
        self.pool.attach(self.entry)
        for worker in self.workers:
            worker.pools.append(self.pool)
        self.pool.rebuild()
        tail = config.policy == "tail"
        self.plugin = TailRoute(config, lambda: clock.now) if tail else Route(config)
        self.pipeline = Pipeline.of([Link(self.plugin, "route")])
        self.seen = Seen()
        self._reports = reports
        if reports:
            for number in range(len(engines)):
                clock.after(REPORTS * number / len(engines), lambda number=number: self._report(number))

    def _report(self, number: int) -> None:
        self._hear(number)
        self.clock.after(REPORTS, lambda: self._report(number))

    def _hear(self, number: int) -> None:
        engine, standing = self.engines[number], self.workers[number].standing
        standing.running, standing.waiting, standing.sampled = engine.running, len(engine.queue), self.clock.now

    def foreign(self, number: int, ask: Ask) -> None:
        """A call that another gateway sends to a worker."""
        self.engines[number].take(Work(ask.parts, ask.answer_tokens, _nothing, _nothing))

    def ask(self, ask: Ask, *, counted: bool = True) -> None:
        """Choose a worker and send the call."""
        headers = {} if ask.session is None else {b"x-session-id": ask.session.encode()}
        call: Any = StandInCall(ask.raw, headers, self.entry, self.pipeline)
        worker = choose(call, candidates_for(call, self.entry, None), self.pipeline.score_workers)
        assert worker is not None
        number = self.workers.index(worker)
        began = self.clock.now
        attempt: Any = SimpleNamespace(call=call, worker=worker, number=1, why="first", fault=None, first_content_ns=0)
        attempt.started_ns = attempt.sent_ns = int(began * 1e9)
        worker.inflight += 1
        assert agreed(call, attempt)
        call.tries.append(attempt)

        def first_content() -> None:
            attempt.first_content_ns = int(self.clock.now * 1e9)
            if self._reports:
                self._hear(number)
            for hook in self.pipeline.on_commit:
                hook(call, attempt)
            if counted:
                del self.seen.waiting[id(call)]
                self.seen.first_content.append(self.clock.now - began)
                self.seen.prompt_tokens += work.tokens
                self.seen.cached_tokens += work.cached

        def done() -> None:
            worker.inflight -= 1
            for hook in self.pipeline.on_attempt_end:
                hook(call, attempt, AttemptEnd.WON)
            for _, hook in self.pipeline.on_complete:
                hook(call, None)

        if counted:
            self.seen.waiting[id(call)] = began
        work = Work(ask.parts, ask.answer_tokens, first_content, done)
        self.engines[number].take(work)


def _nothing() -> None:
    return
