"""The watches of all workers of a process, who among them falls silent, the hop key they are shown, and the ageing of
what they said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tailrace.proxy.fleet import SUSPECT, Pool, Worker
from tailrace.proxy.hop import HopKey
from tailrace.proxy.lines import Lines
from tailrace.proxy.sweep import Sweep
from tailrace.proxy.watch.pace import Pace
from tailrace.proxy.watch.pools import Pools
from tailrace.proxy.watch.silence import Silence
from tailrace.proxy.watch.watcher import WorkerWatch

TICK = 0.25


class FleetWatch:
    """One for the life of a process; `follow` after every change of configuration.

    `suspected` is told of each worker that becomes suspect, and what speaks against it.
    """

    def __init__(
        self,
        sweep: Sweep,
        models_changed: Callable[[], None],
        suspected: Callable[[str, str], None],
        *,
        watching: bool,
    ) -> None:
        self._loop = sweep.loop
        self._clock = sweep.clock
        self._models_changed = models_changed
        self._count_suspicion = suspected
        self._watching = watching
        self._silence = Silence(sweep, self)
        self._pools = Pools()
        self._stale = 0.0
        self._key: HopKey | None = None
        self._line = b""
        self._line_due = 0.0
        self._watches: dict[Worker, WorkerWatch] = {}
        self._tasks: dict[Worker, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._known: dict[Worker, tuple[dict[str, str], bool]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._lines = Lines(sweep.loop)
        self._pace = Pace()
        self._due: set[Pool] = set()
        """Pools of workers that have changed, whose lists are to be built anew."""
        self._models_due = False
        self._late: asyncio.TimerHandle | None = None

    def follow(self, workers: Iterable[Worker], key: HopKey | None, stale: float, suspect_after: float) -> None:
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
                self._watches[worker] = WorkerWatch(worker, self, self._clock, self._lines)
                self._begin(worker)
            elif worker in again:
                self._stop(worker)
                self._begin(worker)
        if self._watching:
            self._silence.follow(workers, suspect_after)
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
        self._silence.close()
        for timer in (self._timer, self._late):
            if timer is not None:
                timer.cancel()
        for worker in tuple(self._watches):
            self._dismiss(worker)
        if self._ending:
            await asyncio.wait(self._ending)

    # What watches tell.

    def changed(self, worker: Worker) -> None:
        """Rebuild the lists that depend on a worker, or soon, where too many change at once."""
        if worker.standing.dead:
            worker.died = worker.died or self._loop.time()
        elif SUSPECT not in worker.bars:
            worker.died = 0.0
        self._due.update(worker.pools)
        known = (worker.standing.models, worker.standing.dead)
        if self._known.get(worker, ({}, False)) != known:
            self._known[worker] = known
            self._models_due = True
        if self._late is None:
            if wait := self._pace.wait:
                self._late = self._loop.call_later(wait, self._rebuild_late)
            else:
                self._pace.do(self._rebuild)

    def _rebuild_late(self) -> None:
        self._late = None
        self._pace.do(self._rebuild)

    def _rebuild(self) -> None:
        while self._due:
            self._due.pop().rebuild()
        if self._models_due:
            self._models_due = False
            self._models_changed()

    def known(self, worker: Worker, *, bare: bool) -> None:
        """A bare engine is not shown the hop key: whoever has a token may use it for a while."""
        worker.hop(b"" if bare else self._line)

    def heard(self, worker: Worker) -> None:
        """It has said something."""
        self._silence.heard(worker)

    def promised(self, worker: Worker, beat: float) -> None:
        """It says how often it will be heard."""
        self._silence.promised(worker, beat)

    def unreached(self, worker: Worker) -> None:
        """Nobody was found there, or who was there hung up."""
        self._silence.unreached(worker)

    # What silence tells.

    def suspected(self, worker: Worker, evidence: str) -> None:
        """Count it."""
        self._count_suspicion(worker.name, evidence)

    def verify(self, worker: Worker) -> None:
        """Ask a worker anew, and at once; but whoever waits for a connection to it would only wait for longer."""
        if worker in self._tasks and not self._watches[worker].connecting:
            self._stop(worker)
            self._begin(worker)

    # What goes by time.

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK, self._tick)
        if self._loop.time() >= self._line_due:
            self._show_key()
        oldest = self._clock.now - self._stale
        for worker in self._watches:
            standing = worker.standing
            if standing.sampled is not None and standing.sampled < oldest and standing.load_known:
                standing.forget_load()
        self._pools.look(self._watches)

    def _show_key(self) -> None:
        key = self._key
        self._line = b"" if key is None else key.line()
        self._line_due = float("inf") if key is None else self._loop.time() + key.until_next()
        for worker, watch in self._watches.items():
            worker.hop(b"" if watch.bare else self._line)
