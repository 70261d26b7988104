"""The attempt engine without sockets: workers, connections and a call that only note what is done to them."""

from __future__ import annotations

import asyncio
import contextvars
from types import SimpleNamespace
from typing import Any

from fakes import chat_chunk, run
from tailrace.proxy import sending
from tailrace.proxy.dialects import CHAT
from tailrace.proxy.fault import Failed, Fault, Reject, connect_failed, connection_lost
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.pipeline import Link, Pipeline
from tailrace.proxy.plugin import Plugin, Target
from tailrace.proxy.race import Race
from tailrace.proxy.stride import Stride
from tailrace.proxy.sweep import Clock
from tailrace.proxy.wire import frame, parse_head

EVENTS = parse_head(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked")
ROLE = chat_chunk("", role="assistant")
JSON = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: 2"


class FakeConnection:
    def __init__(self) -> None:
        self.sink: Any = None
        self.stride: Any = None
        self.clock = Clock()
        self.closed = False
        self.transport = None

    def send(self, sink: Any, head: bytes, body: bytes) -> None:
        self.sink = sink

    def release(self) -> None:
        self.sink = None
        self.closed = True


class FakePool:
    """Hands out a resting connection where `resting` says so; opens others when the test says so."""

    def __init__(self) -> None:
        self.resting = 0
        self.opening: list[tuple[Any, Any]] = []
        self.cancelled = 0
        self.connections: list[FakeConnection] = []

    def take(self) -> FakeConnection | None:
        if not self.resting:
            return None
        self.resting -= 1
        return self.made()

    def made(self) -> FakeConnection:
        self.connections.append(FakeConnection())
        return self.connections[-1]

    def connect(self, done: Any, failed: Any) -> Any:
        entry = (done, failed)
        self.opening.append(entry)

        def cancel() -> None:
            self.cancelled += entry in self.opening

        return SimpleNamespace(cancel=cancel)


class FakeWorker:
    def __init__(self, name: str) -> None:
        self.name = name
        self.connections = FakePool()
        self.inflight = 0
        self.reachable = True

    def __repr__(self) -> str:
        return self.name

    # What happens to its latest attempt.

    def accept(self) -> None:
        done, _ = self.connections.opening.pop()
        done(self.connections.made())

    def refuse(self) -> None:
        _, failed = self.connections.opening.pop()
        failed(connect_failed("refused"))

    @property
    def sink(self) -> Any:
        return self.connections.connections[-1].sink

    def _gone(self) -> Any:
        connection = self.connections.connections[-1]
        sink, connection.sink = connection.sink, None
        return sink

    def lose(self, *, sent: bool = True) -> None:
        self._gone().on_fault(connection_lost(sent=sent))

    def fail(self, fault: Fault) -> None:
        self._gone().on_fault(fault)

    def say(self, *pieces: bytes) -> None:
        sink = self.sink
        if not hasattr(sink, "head"):
            sink.on_head(EVENTS)
        sink.on_chunks(b"".join([frame(piece) for piece in pieces]), len(pieces))

    def status(self, status: int, body: bytes = b"{}") -> None:
        sink = self.sink
        sink.on_head(parse_head(JSON % status))
        sink.on_data(body)
        self._gone().on_end()

    def answer(self, text: str = "hi") -> None:
        self.say(chat_chunk(text))


class Entry:
    """The workers of a model, drawn in order, those not tried yet first."""

    unlisted = False

    why_nobody = ""

    def __init__(self, workers: list[FakeWorker]) -> None:
        self.candidates = workers

    def draw(self, without: Any = ()) -> list[FakeWorker]:
        return [worker for worker in self.candidates if worker not in without] or self.candidates


class Recorder(Plugin[None]):
    def __init__(self) -> None:
        super().__init__(None)
        self.ends: list[tuple[int, str]] = []

    def on_attempt_end(self, call: Any, attempt: Any, end: Any) -> None:
        self.ends.append((attempt.number, str(end)))


class InOrder(Plugin[None]):
    """Prefers the worker that comes first."""

    def __init__(self) -> None:
        super().__init__(None)

    def score_workers(self, call: Any, candidates: Any) -> list[float]:
        return [1.0 / (1 + index) for index in range(len(candidates))]


class Course:
    """One race: its workers `a`, `b`, … and what came of it."""

    def __init__(self, monkeypatch: Any, *plugins: Any, workers: str = "ab") -> None:
        monkeypatch.setattr(sending, "request", lambda call, attempt: (b"head", b"body"))
        self.workers = [FakeWorker(name) for name in workers]
        self.recorder = Recorder()
        self.failures: list[str] = []
        chain = SimpleNamespace(
            pipeline=Pipeline.of([Link(plugin, "test") for plugin in (*plugins, self.recorder, InOrder())]),
            timeouts=SimpleNamespace(first_content=lambda size: 10.0, unary=600.0),
            hold_unary=1 << 20,
            models=SimpleNamespace(resolve=lambda name: None),
        )
        self.call: Any = SimpleNamespace(
            id="req",
            chain=chain,
            entry=Entry(self.workers),
            model="m",
            stream=True,
            pinned=None,
            head=SimpleNamespace(method="POST"),
            body=object(),
            tries=[],
            stride=SimpleNamespace(within=lambda work, *args: work(*args)),
            tried_before=0,
            client=SimpleNamespace(
                loop=asyncio.get_running_loop(), service=SimpleNamespace(plugin_failed=self.failures.append)
            ),
            route=SimpleNamespace(dialect=CHAT, entry=None, expects=b"", anthropic=False, text_answers=False),
        )
        self.race = Race(self.call)
        self.winner: Any = None
        self.fault: Fault | None = None

    def __getattr__(self, name: str) -> FakeWorker:
        return next(worker for worker in self.workers if worker.name == name)

    def start(self) -> Course:
        self.call.stride = Stride(self._wait(), asyncio.get_running_loop(), contextvars.copy_context())
        self.call.stride.resume()
        return self

    async def _wait(self) -> None:
        try:
            self.race.start()
            self.winner = await self.race
        except (Failed, Reject) as failed:
            self.fault = failed.fault

    def finish(self) -> list[tuple[int, str]]:
        """End the call as `finish` does; gives how each attempt ended. Nothing may be left."""
        self.race.cancel()
        if self.race.winner is not None:
            self.race.winner.release()
            self.race.finished(self.race.winner, AttemptEnd.WON)
        assert {worker.inflight for worker in self.workers} == {0}
        assert sorted(number for number, _ in self.recorder.ends) == [attempt.number for attempt in self.call.tries]
        for worker in self.workers:
            assert all(connection.sink is None for connection in worker.connections.connections)
            assert len(worker.connections.opening) == worker.connections.cancelled
        return sorted(self.recorder.ends)


def policy(**phases: Any) -> Any:
    """A plugin with these phases, each a function without `self`."""

    def method(phase: Any) -> Any:
        return lambda self, *args: phase(*args)

    def created(self: Any) -> None:
        Plugin.__init__(self, None)

    methods = {name: method(phase) for name, phase in phases.items()}
    return type("Given", (Plugin,), {**methods, "__init__": created})()


def move_on(call: Any, tries: Any, fault: Any) -> Target:
    """The policy that asks another worker whatever happened."""
    return Target()


def racing(test: Any) -> Any:
    """Run a test, a coroutine function that takes a maker of courses, on a loop of its own."""

    def outer(monkeypatch: Any) -> None:
        run(test(lambda *plugins, **rest: Course(monkeypatch, *plugins, **rest)))

    outer.__name__ = test.__name__
    return outer
