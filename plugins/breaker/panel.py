"""The circuits of one process, and how they change: together with those of the other processes of the host.

A change is written to the board under its lock, and every process follows it within TICK. An open circuit whose time is
over is half open: whichever process has calls for it and gets the lock of its probe lets one call through.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tailrace.plugins.breaker.board import Board, Verdict
from tailrace.plugins.breaker.circuit import SECOND, Circuit, Why

if TYPE_CHECKING:
    from tailrace.plugins.breaker.settings import Config
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker

log: Final = logging.getLogger("tailrace")
TICK: Final = 0.05
BY: Final = "breaker"
_HOLD: Final = SECOND // 2
"""How long a process may keep the right to probe without a call to probe with."""
_BUSY: Final = SECOND
_CALM: Final = 60 * SECOND
"""Closed for so long, and for as long as it was open, a circuit begins anew with its shortest time."""
_TRIES: Final = 200
_JITTER: Final = 0.2
_OUT: Final = "worker %s gets no calls for %.1f s: %s"
_SPARED: Final = "worker %s should get no calls for %.1f s, but as one of the last of its pool it still does: %s"
_live: list[Panel] = []
"""Those of this process, the newest last: two while a reload's old chain has calls left."""


class Panel:
    """Without a board, as in tests of a plugin alone, circuits are this process's own."""

    def __init__(self, config: Config, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.now = now
        self.circuits: dict[Worker, Circuit] = {}
        self.odd: dict[Worker, Circuit] = {}
        """Those that are let in again, or wait for their probe: the workers that calls must be chosen for."""
        self.calls_at = 0
        """When a call was last chosen for."""
        self.changes = {("open", why.name.lower()): 0 for why in Why if why}
        self.probes = {"passed": 0, "failed": 0, "neutral": 0}
        self._config = config
        self._board: Board | None = None
        self._epoch = -1
        self._open: dict[Worker, Circuit] = {}

    def start(self, board: Board | None) -> None:
        """Take part in what the host knows."""
        self._board = board
        _live.append(self)
        self._follow()

    def stop(self) -> None:
        """Take part no more; bars stay where another panel of this process keeps them up."""
        _live.remove(self)
        for worker, circuit in self._open.items():
            self._drop_token(circuit)
            if not any(worker in other._open for other in _live):
                worker.unbar(BY)
        self._open.clear()
        self.odd.clear()
        if self._board is not None:
            self._board.close()
            self._board = None

    def of(self, worker: Worker) -> Circuit:
        """A worker's circuit; the first time, those of its whole pools are made."""
        found = self.circuits.get(worker)
        if found is None:
            for each in (worker, *(other for pool in worker.pools for other in pool.workers)):
                if each not in self.circuits:
                    self.circuits[each] = Circuit(each)
            self._follow()
            found = self.circuits[worker]
        return found

    def forget_the_gone(self) -> None:
        """Let go of workers that are in no pool any more."""
        for worker in [worker for worker in self.circuits if not worker.pools]:
            circuit = self.circuits.pop(worker)
            self._drop_token(circuit)
            worker.unbar(BY)
            self._open.pop(worker, None)
            self.odd.pop(worker, None)

    def note_spared(self) -> None:
        """Tell the board which open workers get calls nevertheless, as the last of their pools."""
        taking = {pool: frozenset(pool.eligible) for worker in self._open for pool in worker.pools}
        for worker, circuit in self._open.items():
            self._note_spared(circuit, any(worker in taking[pool] for pool in worker.pools))

    def _note_spared(self, circuit: Circuit, spared: bool) -> None:
        if self._board is not None and circuit.slot is not None:
            self._board.spare(circuit.slot, spared)

    # Changes.

    def open(self, circuit: Circuit, why: Why, told: str) -> None:
        """Take a worker out."""
        known, now = circuit.verdict.since, self.now()

        def opened(present: Verdict) -> Verdict | None:
            if present.open and present.since > known:
                return None  # another process was quicker
            times = present.times + 1 if present.open or not self._calm(present, now) else 1
            return Verdict(True, now, now + self._length(times), times, int(why))

        if self._change(circuit, opened):
            self._count("open", why)
            seconds = (circuit.verdict.until - now) / SECOND
            spared = any(circuit.worker in pool.eligible for pool in circuit.worker.pools)
            self._note_spared(circuit, spared)
            log.warning(_SPARED if spared else _OUT, circuit.worker.name, seconds, told)

    def close(self, circuit: Circuit) -> None:
        """Let a worker in again."""
        now = self.now()

        def closed(present: Verdict) -> Verdict | None:
            return Verdict(False, now, present.until, present.times, present.why) if present.open else None

        if self._change(circuit, closed):
            self._count("closed", Why(circuit.verdict.why))
            log.warning("worker %s gets calls again, step by step: its probe went well", circuit.worker.name)

    def _calm(self, verdict: Verdict, now: int) -> bool:
        nominal = self._config.open_for * 2.0 ** max(0, verdict.times - 1)
        return now - verdict.since > max(_CALM, min(nominal, self._config.open_limit) * SECOND)

    def _length(self, times: int) -> int:
        seconds = min(self._config.open_for * 2.0 ** min(times - 1, 60), self._config.open_limit)
        return int(seconds * random.uniform(1 - _JITTER, 1 + _JITTER) * SECOND)

    def _change(self, circuit: Circuit, make: Callable[[Verdict], Verdict | None]) -> bool:
        """Change a verdict for the whole host, unless that makes nothing of the present one; whether it did."""
        board = self._board
        for _ in range(_TRIES if board is not None else 0):
            assert board is not None
            with board.locked() as mine:
                slot = board.place(circuit.worker.name) if mine else None
                if slot is not None:
                    present = board.read(slot)
                    verdict = make(present)
                    if verdict is not None:
                        board.write(slot, verdict)
                    circuit.slot = slot
                    self._adopt(circuit, verdict or present)
                    return verdict is not None
            if mine:
                break
        # No board, no room on it, or its lock's holder stands still: then it holds for this process alone.
        verdict = make(circuit.verdict)
        if verdict is not None:
            self._adopt(circuit, verdict)
        return verdict is not None

    def _adopt(self, circuit: Circuit, verdict: Verdict) -> None:
        was, worker = circuit.verdict, circuit.worker
        if verdict == was:
            return
        circuit.verdict = verdict
        if verdict.open:
            circuit.record.forget()
            circuit.share = 1.0
            self.odd.pop(worker, None)
            self._open[worker] = circuit
            worker.bar(BY)
        elif was.open:
            circuit.record.forget()
            circuit.ramp(self.now())
            del self._open[worker]
            self.odd[worker] = circuit
            worker.unbar(BY)

    def _count(self, to: str, why: Why) -> None:
        change = (to, why.name.lower())
        self.changes[change] = self.changes.get(change, 0) + 1

    # Probes.

    def claim(self, circuit: Circuit, call: Call, attempt: Attempt) -> None:
        """An attempt goes to an open worker: where its time is over, and nobody else has one, this is the probe."""
        if circuit.probe is None and (circuit.token or self._take_token(circuit)):
            circuit.probe = (call, attempt)
            self.odd.pop(circuit.worker, None)
            circuit.worker.bar(BY)

    def _take_token(self, circuit: Circuit) -> bool:
        now = self.now()
        if now < circuit.verdict.until and circuit.verdict.until - now < 2 * self._config.open_limit * SECOND:
            return False
        board, slot = self._board, circuit.slot
        if board is not None and slot is not None:
            if not board.take_probe(slot):
                return False
            present = board.read(slot)
            if present != circuit.verdict:
                # Whoever had it before has just decided.
                board.return_probe(slot)
                self._adopt(circuit, present)
                return False
        circuit.token, circuit.token_at = True, now
        return True

    def probed(self, circuit: Circuit, end: str) -> None:
        """A probe is over; its right goes back however it ended."""
        self.probes[end] += 1
        self._drop_token(circuit)

    def _drop_token(self, circuit: Circuit) -> None:
        circuit.probe = None
        if circuit.token:
            circuit.token = False
            if self._board is not None and circuit.slot is not None:
                self._board.return_probe(circuit.slot)

    # What goes by time.

    def tick(self) -> None:
        """Follow what other processes have changed, and see to open circuits."""
        if self._board is not None and self._board.epoch != self._epoch:
            self._follow()
        if self._open:
            now = self.now()
            for circuit in tuple(self._open.values()):
                self._see_to(circuit, now)

    def _follow(self) -> None:
        board = self._board
        if board is None:
            return
        self._epoch = board.epoch
        slots = dict(board.known())
        for worker, circuit in self.circuits.items():
            slot = slots.get(worker.name)
            if slot is not None:
                circuit.slot = slot
                self._adopt(circuit, board.read(slot))

    def _leads(self, worker: Worker) -> bool:
        """Whether it is for this panel to bar a worker and to let it in: no newer one of this process knows it."""
        return next((panel for panel in reversed(_live) if worker in panel.circuits), self) is self

    def _see_to(self, circuit: Circuit, now: int) -> None:
        worker = circuit.worker
        if circuit.probe is not None:
            call, attempt = circuit.probe
            if attempt.end is None and attempt not in call.tries:
                # Another plugin would not have it: the attempt never began.
                self.probed(circuit, "neutral")
        elif not self._leads(worker):
            self._drop_token(circuit)
            self.odd.pop(worker, None)
            return
        elif circuit.token:
            if now - circuit.token_at <= _HOLD:
                return
            self._drop_token(circuit)
            self.odd.pop(worker, None)
            circuit.rests_until = now + int(_HOLD * random.random())
        elif now - self.calls_at < _BUSY and now >= circuit.rests_until and self._take_token(circuit):
            self.odd[worker] = circuit
            worker.unbar(BY)
            return
        if circuit.verdict.open:
            worker.bar(BY)


def states(board: Board, now: int) -> Iterable[tuple[str, int]]:
    """How each worker stands that was ever in trouble: 0 closed, 1 half open, 2 open, 3 open but for the floor."""
    for name, slot in board.known():
        verdict = board.read(slot)
        yield name, 0 if not verdict.open else 1 if now >= verdict.until else 2 + board.spares(slot)
