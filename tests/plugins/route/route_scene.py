"""A pool of workers without sockets, calls without clients, and attempts that a test moves along by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
from tailrace.plugins.route import Config
from tailrace.plugins.route.grounds import TEMPO
from tailrace.plugins.route.plugin import TailRoute
from tailrace.proxy.address import Address
from tailrace.proxy.choosing import agreed, candidates_for, choose
from tailrace.proxy.fault import Fault
from tailrace.proxy.fleet import ModelEntry, Pool, Worker
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.pipeline import Link, Pipeline


class Call:
    """What routing sees of a call."""

    pinned = None

    def __init__(self, scene: Scene, raw: bytes, headers: dict[bytes, bytes], stream: bool) -> None:
        self.raw, self.head, self.stream, self.entry = raw, headers, stream, scene.entry
        self.body = Body(raw)
        self.route = SimpleNamespace(name="chat")
        self.chain = SimpleNamespace(pipeline=scene.pipeline)
        self.tries: list[Any] = []
        self._kept: dict[Any, Any] = {}

    def __getitem__(self, key):
        return self._kept[key]

    def __setitem__(self, key, value):
        self._kept[key] = value

    def __contains__(self, key):
        return key in self._kept


class Body:
    """A body's fields."""

    def __init__(self, raw: bytes) -> None:
        self._fields = orjson.loads(raw)

    def has(self, name):
        return name in self._fields

    def get(self, name):
        return self._fields.get(name)


class Scene:
    """A pool behind one model, and the plugin that chooses from it."""

    def __init__(self, count: int = 4, *others: Link, **settings: Any) -> None:
        self.now = 1000.0
        self.plugin = TailRoute(Config(policy="tail", **settings), lambda: self.now)
        self.pipeline = Pipeline.of([Link(self.plugin, "route"), *others])
        self.workers: list[Any] = [worker_at(f"http://10.0.0.{number + 1}:8000") for number in range(count)]
        self.pool = Pool("p", self.workers)
        self.entry = ModelEntry("m", self.pool, "m")
        self.pool.attach(self.entry)
        for worker in self.workers:
            worker.pools.append(self.pool)
        self.pool.rebuild()

    def call(
        self,
        tokens: int = 10,
        *,
        session: str | None = None,
        stream: bool = True,
        messages: list[dict[str, Any]] | None = None,
        **fields: Any,
    ) -> Any:
        """A call with a prompt of so many tokens, all of one kind unless `messages` are given."""
        asked = messages or [{"role": "user", "content": "x" * (tokens * 4 - 80)}]
        raw = orjson.dumps({"model": "m", "messages": asked, "stream": stream, **fields})
        return Call(self, raw, {} if session is None else {b"x-session-id": session.encode()}, stream)

    def send(self, call: Any, *, to: Worker | None = None, why: str = "first") -> Any:
        """Choose a worker as the core does, or take `to`, and send the call there."""
        worker = to or self.choose(call)
        attempt = SimpleNamespace(call=call, worker=worker, number=len(call.tries) + 1, why=why, fault=None)
        attempt.status = attempt.first_content_ns = 0
        attempt.started_ns = attempt.sent_ns = int(self.now * 1e9)
        worker.inflight += 1
        if not agreed(call, attempt):
            worker.inflight -= 1
            return None
        call.tries.append(attempt)
        return attempt

    def choose(self, call: Any) -> Any:
        """Whom the core takes."""
        return choose(call, candidates_for(call, self.entry, None), self.pipeline.score_workers)

    def commit(self, attempt: Any, seconds: float = 0.0) -> None:
        """First content comes, so long after the present."""
        self.now += seconds
        attempt.first_content_ns = int(self.now * 1e9)
        for hook in self.pipeline.on_commit:
            hook(attempt.call, attempt)

    def end(self, attempt: Any, end: AttemptEnd = AttemptEnd.WON, fault: Fault | None = None) -> None:
        """The attempt is over."""
        attempt.worker.inflight -= 1
        attempt.fault = fault
        for hook in self.pipeline.on_attempt_end:
            hook(attempt.call, attempt, end)

    def complete(self, call: Any) -> None:
        """The call is over."""
        for _, hook in self.pipeline.on_complete:
            hook(call, None)

    def answer(self, worker: Worker, seconds: float, tokens: int = 10, *, stream: bool = True) -> None:
        """A whole call at one worker, whose first content takes so long."""
        attempt = self.send(self.call(tokens, stream=stream), to=worker)
        self.commit(attempt, seconds)
        self.end(attempt)
        self.complete(attempt.call)

    def chosen(self, times: int = 200, **asked: Any) -> list[int]:
        """How often each worker is chosen by calls that are not sent."""
        counts = [0] * len(self.workers)
        for _ in range(times):
            counts[self.workers.index(self.choose(self.call(**asked)))] += 1
        return counts

    def tempo(self, number: int) -> Any:
        """What was learnt of a worker."""
        return self.workers[number].learnt[TEMPO]

    def report(self, number: int, running: int | None, waiting: int | None) -> None:
        """A worker says what it has to do."""
        standing = self.workers[number].standing
        standing.running, standing.waiting, standing.sampled = running, waiting, self.now


def worker_at(url: str, weight: float = 1.0) -> Any:
    """A worker without connections."""
    worker = Worker(Address.parse(url), SimpleNamespace(round_trip=0.0))  # type: ignore[arg-type]
    worker.weight = weight
    return worker


def taught(*seconds: float, **settings) -> Scene:
    """A pool whose workers have answered in so many seconds each."""
    scene = Scene(len(seconds), **settings)
    for worker, took in zip(scene.workers, seconds, strict=True):
        scene.answer(worker, took)
    return scene
