"""The attempt engine without sockets: workers, connections and a call that only note what is done to them."""

from __future__ import annotations

import asyncio
import contextvars
from itertools import count
from types import SimpleNamespace
from typing import Any

from fakes import run
from racers import Body, Entry, FakeWorker, Notes
from tailrace.proxy import sending
from tailrace.proxy.dialects import CHAT
from tailrace.proxy.fault import Failed, Fault, Reject
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.pipeline import Link, Pipeline
from tailrace.proxy.plugin import Plugin, Target
from tailrace.proxy.race import Race
from tailrace.proxy.reply import Instead
from tailrace.proxy.stride import Stride
from tailrace.proxy.sweep import Clock

_COUNT = count()


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
        self.call: Any = Notes(
            id=f"req{next(_COUNT)}",
            chain=chain,
            entry=Entry(self.workers),
            model="m",
            stream=True,
            pinned=None,
            trail=None,
            harvest=None,
            head=SimpleNamespace(method="POST", get=lambda name: None),
            peer=SimpleNamespace(trusted=False),
            body=Body(),
            size=100,
            tries=[],
            stride=SimpleNamespace(within=lambda work, *args: work(*args)),
            tried_before=0,
            client=SimpleNamespace(
                loop=asyncio.get_running_loop(),
                service=SimpleNamespace(plugin_failed=self.failures.append, clock=Clock()),
            ),
            route=SimpleNamespace(
                name="chat", dialect=CHAT, entry=None, pinned=False, expects=b"", anthropic=False, text_answers=False
            ),
        )
        self.race = Race(self.call)
        self.winner: Any = None
        self.fault: Fault | None = None
        self.instead: Any = None

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
        except Instead as instead:
            self.instead = instead.reply

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
