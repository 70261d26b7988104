"""Some processes of one host, each with its own `breaker` and its own sight of the same workers."""

from __future__ import annotations

import random
from contextlib import contextmanager
from pathlib import Path

from fakes import run
from racing import Course
from tailrace.plugins.breaker.board import Board
from tailrace.plugins.breaker.circuit import SECOND
from tailrace.plugins.breaker.plugin import Breaker
from tailrace.plugins.breaker.settings import Config
from tailrace.proxy.fault import Fault, Whose

REFUSED = Fault(kind="http_error", whose=Whose.CLIENT, status=400, code="x", message="x")
BROKEN = Fault(kind="http_error", whose=Whose.ENGINE, status=500, code="x", message="x")


class Host:
    """Some processes of one host, each with its own plugin and its own sight of the same workers."""

    def __init__(self, monkeypatch, folder: Path, seats: int, workers: str, **settings) -> None:
        self.now = 1_000 * SECOND
        self.monkeypatch = monkeypatch
        monkeypatch.setattr("tailrace.proxy.attempt.monotonic_ns", lambda: self.now)
        monkeypatch.setattr("tailrace.plugins.breaker.panel.random.uniform", lambda low, high: 1.0)
        self.plugins = [Breaker(Config(**settings)) for _ in range(seats)]
        self.folder = folder
        self.fleets: list[list] = [[] for _ in range(seats)]
        self.names = workers
        for plugin in self.plugins:
            plugin.panel.now = lambda: self.now
            plugin.panel.start(Board.open(folder))

    def call(self, seat: int = 0, **body) -> Course:
        """A call of one process, begun; its workers are the same objects each time."""
        course = Course(self.monkeypatch, self.plugins[seat], workers=self.names)
        if self.fleets[seat]:
            course.workers[:] = self.fleets[seat]
            for worker in course.workers:
                worker.pools = [course.call.entry.pool]
        self.fleets[seat] = list(course.workers)
        course.call.entry.pool.workers = list(course.workers)
        course.call.entry.pool.rebuild()
        course.call.body.update(body)
        return course.start()

    def answers(self, seat: int = 0, fault: Fault | None = None, **body) -> str:
        """A call from its beginning to its end; which worker had it."""
        course = self.call(seat, **body)
        worker = course.call.tries[0].worker
        worker.accept()
        if fault is None:
            worker.answer()
        else:
            worker.fail(fault)
        course.race.cancel()
        if course.race.winner is not None:
            course.race.finished(course.race.winner, "won")
        return str(worker.name)

    def break_down(self, seat: int = 0, count: int = 5, fault: Fault = BROKEN) -> None:
        """Worker `a`, the preferred one, fails so often."""
        for _ in range(count):
            assert self.answers(seat, fault) == "a"

    def tick(self, seconds: float = 0.05) -> None:
        """Let time pass."""
        self.now += int(seconds * SECOND)
        for plugin in self.plugins:
            plugin.tick()

    def shares(self, seat: int = 0, count: int = 200) -> float:
        """How many of so many calls go to `a`."""
        return [self.answers(seat) for _ in range(count)].count("a") / count

    def circuit(self, seat: int = 0):
        return self.plugins[seat].panel.circuits[self.fleets[seat][0]]


@contextmanager
def host(monkeypatch, folder, seats=1, workers="abcd", **settings):
    random.seed(7)
    made = Host(monkeypatch, folder, seats, workers, **settings)
    try:
        yield made
    finally:
        for plugin in made.plugins:
            plugin.panel.stop()
            assert not plugin.panel._open
        for fleet in made.fleets:
            assert all(not worker.bars for worker in fleet)


def scene(test):
    """A test of a coroutine function with a maker of hosts."""

    def outer(monkeypatch, tmp_path):
        async def body():
            await test(lambda **rest: host(monkeypatch, tmp_path, **rest))

        run(body())

    outer.__name__ = test.__name__
    return outer


def half_open(h, seat=0):
    """Break `a` down, let its time pass, and have this process hold the probe."""
    h.break_down(seat)
    h.tick(5.1)
    h.answers(seat)
    h.tick()
