"""The watches of all workers of a process, the hop key they are shown, and the ageing of what they said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tailrace.proxy.fleet import Worker
from tailrace.proxy.hop import HopKey
from tailrace.proxy.sweep import Clock
from tailrace.proxy.watch.watcher import WorkerWatch

TICK = 0.25


class FleetWatch:
    """One for the life of a process; `follow` after every change of configuration."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, models_changed: Callable[[], None], *, watching: bool
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._models_changed = models_changed
        self._watching = watching
        self._stale = 0.0
        self._key: HopKey | None = None
        self._line = b""
        self._line_due = 0.0
        self._watches: dict[Worker, WorkerWatch] = {}
        self._tasks: dict[Worker, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._known: dict[Worker, tuple[dict[str, str], bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, workers: Iterable[Worker], key: HopKey | None, stale: float) -> None:
        """Watch these workers from now on, and no others."""
        workers = tuple(workers)
        # Whoever was let in with the old key does not say what it thinks of the new one.
        again = set(self._watches) if key != self._key else set()
        self._stale = stale
        self._key = key
        for worker in self._watches.keys() - set(workers):
            self._dismiss(worker)
        for worker in workers:
            if worker not in self._watches:
                self._watches[worker] = WorkerWatch(worker, self, self._clock)
                self._begin(worker)
            elif worker in again:
                self._stop(worker)
                self._begin(worker)
        self._show_key()
        if self._timer is None:
            self._timer = self._loop.call_later(TICK, self._tick)

    def _begin(self, worker: Worker) -> None:
        if self._watching:
            self._tasks[worker] = self._loop.create_task(self._watches[worker].run())

    def _dismiss(self, worker: Worker) -> None:
        del self._watches[worker]
        self._known.pop(worker, None)
        self._stop(worker)

    def _stop(self, worker: Worker) -> None:
        task = self._tasks.pop(worker, None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End every watch."""
        if self._timer is not None:
            self._timer.cancel()
        for worker in tuple(self._watches):
            self._dismiss(worker)
        if self._ending:
            await asyncio.wait(self._ending)

    # What watches tell.

    def changed(self, worker: Worker) -> None:
        """Rebuild the lists that depend on a worker."""
        worker.changed()
        known = (worker.standing.models, worker.standing.dead)
        if self._known.get(worker, ({}, False)) != known:
            self._known[worker] = known
            self._models_changed()

    def known(self, worker: Worker, *, bare: bool) -> None:
        """A bare engine is not shown the hop key: whoever has a token may use it for a while."""
        worker.hop(b"" if bare else self._line)

    # What goes by time.

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK, self._tick)
        if self._loop.time() >= self._line_due:
            self._show_key()
        oldest = self._clock.now - self._stale
        for worker in self._watches:
            standing = worker.standing
            if standing.seen is not None and standing.seen < oldest and standing.load_known:
                standing.forget_load()

    def _show_key(self) -> None:
        key = self._key
        self._line = b"" if key is None else key.line()
        self._line_due = float("inf") if key is None else self._loop.time() + key.until_next()
        for worker, watch in self._watches.items():
            worker.hop(b"" if watch.bare else self._line)
