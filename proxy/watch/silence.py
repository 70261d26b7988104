"""Workers that may be gone: who falls silent gets no new calls, and what waits there goes elsewhere.

Where streams alone are silent it may well be for the prefill of the very call that waits: new calls stay away then, no
more. Where only acknowledgements fail to come it may be for a packet that was lost: what waits has to wait for the
next one.

One look at all workers at every tick of the sweep, which costs a few attributes each: single connections are gone
through only where none of the streams that were looked at last has got anything. Whoever is heard again is let in at
the next tick. One that stays silent is given up: what runs there goes on elsewhere, where somebody can do that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from tailrace.proxy.fault import FAILURES, fallen_silent
from tailrace.proxy.fleet import SILENT, SUSPECT
from tailrace.proxy.sweep import TICK
from tailrace.proxy.watch.asked import Asked
from tailrace.proxy.watch.pace import Pace
from tailrace.proxy.watch.subscription import Subscription
from tailrace.proxy.watch.vigil import QUIET, Evidence, Vigil

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Pool, Worker
    from tailrace.proxy.sink import Sink
    from tailrace.proxy.sweep import Sweep

log: Final = logging.getLogger("tailrace")
SOON: Final = 0.05
"""Awake seconds for which broken connections alone move nothing: their worker may be there still."""
STEP: Final = 0.5
"""The same for streams that fall silent: a step with a large prefill may take so long, and has nothing for them. That
a sidecar is well says nothing of its engine."""
RESENT: Final = 0.2
"""The same for a host that acknowledges nothing: kernels send a lost packet again before that."""
VOUCHED: Final = 3
"""How many times longer streams may be silent before their worker is given up, if its sidecar is well."""
AGAIN: Final = 1.0
"""Seconds from one verification to the next."""
EACH: Final = 0.0025
"""Seconds by which every worker puts off the next time that any of them is asked for a sign: many are asked rarely."""
_EARLY: Final = 0.005  # what timers may fire too early
_WHY: Final = {
    Evidence.HEARTBEAT: "no sign of life",
    Evidence.STREAMS: "nothing comes on its streams",
    Evidence.CONNECTION: "its connections break or are refused",
    Evidence.HOST: "its host acknowledges nothing",
}


class Hears(Protocol):
    """Who is told of suspicions."""

    def suspected(self, worker: Worker, evidence: str) -> None:
        """A worker has become suspect."""

    def verify(self, worker: Worker) -> None:
        """It should be asked anew, and at once, whether it is there."""


class Silence:
    """Looks at all workers of a process."""

    def __init__(self, sweep: Sweep, hears: Hears) -> None:
        self._sweep = sweep
        self._hears = hears
        self._vigils: dict[Worker, Vigil] = {}
        self._due: set[Pool] = set()
        """Pools whose lists are to be built anew: once for all of their workers that fall silent or are heard again."""
        self._pace = Pace()
        self._last = sweep.clock.now
        self._awake = 0.0
        self._after = 1.0

    def follow(self, workers: Iterable[Worker], after: float) -> None:
        """Look at these workers from now on; one that is silent for `after` seconds is given up."""
        workers = tuple(workers)
        self._after = after
        for worker in self._vigils.keys() - set(workers):
            self._dismiss(self._vigils.pop(worker))
        self._rebuild()
        for worker in workers:
            if worker not in self._vigils:
                self._vigils[worker] = Vigil(worker, self._awake, self._sweep.clock.now)
                worker.connections.broken = partial(self._connection_broke, worker)
        if self._vigils and self.tick not in self._sweep.ticking:
            self._sweep.ticking.append(self.tick)

    def close(self) -> None:
        """Look no more."""
        for vigil in self._vigils.values():
            self._dismiss(vigil)
        self._vigils.clear()
        self._rebuild()
        if self.tick in self._sweep.ticking:
            self._sweep.ticking.remove(self.tick)

    def _dismiss(self, vigil: Vigil) -> None:
        vigil.worker.connections.broken = None
        vigil.evidence.clear()
        self._let_in(vigil)

    def _rebuild(self) -> None:
        while self._due:
            self._due.pop().rebuild()

    # What is heard.

    def heard(self, worker: Worker) -> None:
        """A worker has said something to its watch."""
        vigil = self._vigils.get(worker)
        if vigil is not None:
            vigil.heard = self._now
            vigil.reach.heard = self._sweep.clock.now
            if vigil.evidence:
                vigil.evidence -= {Evidence.HEARTBEAT, Evidence.CONNECTION, Evidence.HOST}
                self._heed(vigil)

    def promised(self, worker: Worker, beat: float) -> None:
        """A worker says how often it will be heard, in seconds; 0 where it does not."""
        vigil = self._vigils.get(worker)
        if vigil is not None:
            vigil.beat = beat

    def unreached(self, worker: Worker) -> None:
        """A worker's watch found nobody, or its feed broke off; it tries again by itself."""
        vigil = self._vigils.get(worker)
        if vigil is not None:
            vigil.evidence.add(Evidence.CONNECTION)
            self._heed(vigil)

    def _connection_broke(self, worker: Worker, sink: Sink | None) -> None:
        """Calls found nobody (`sink` is None), or an exchange's connection ended in the middle."""
        vigil = self._vigils[worker]
        if sink is not None and (isinstance(sink, Subscription | Asked) or not vigil.broke(self._now)):
            return
        vigil.evidence.add(Evidence.CONNECTION)
        self._heed(vigil)
        self._verify(vigil)

    def _verify(self, vigil: Vigil) -> None:
        # A sidecar that is well says so soon enough.
        if self._now - vigil.verified > AGAIN and not (vigil.beat and self._now - vigil.heard < 2 * vigil.beat):
            vigil.verified = self._now
            self._hears.verify(vigil.worker)

    # What goes by time.

    @property
    def _now(self) -> float:
        return self._awake + min(max(self._sweep.loop.time() - self._last, 0.0), TICK)

    def tick(self, now: float) -> None:
        """Look at everybody."""
        last, self._last = self._last, now
        passed = now - last
        late = passed - TICK
        if late > TICK / 2:
            # What came meanwhile has not been read yet.
            passed = max(0.0, TICK - late)
        self._awake = awake = self._awake + passed
        after = max(QUIET, EACH * len(self._vigils))
        troubled = []
        for vigil in self._vigils.values():
            vigil.look(last, passed, awake)
            vigil.look_out(now, after)
            if vigil.lost or vigil.worker.standing.dead:
                vigil.worker.note_death()
            if vigil.evidence or vigil.since is not None:
                troubled.append(vigil)
        for vigil in troubled:
            self._apart(self._judge, vigil)
        # Who leaves one suspect is not to go to the next.
        self._rebuild()
        for vigil in troubled:
            self._apart(self._tell, vigil)

    def _apart(self, act: Callable[[Vigil], None], vigil: Vigil) -> None:
        try:
            act(vigil)
        except Exception:
            log.exception("what is known of worker %s could not be acted on", vigil.worker.name)

    def _heed(self, vigil: Vigil) -> None:
        """Judge one of which something was heard: it is let in with all others at the next tick, but barred at once.

        At the next tick, too, where that would have lists built anew again and again.
        """
        self._judge(vigil)
        if self._due and vigil.since is not None:
            if self._pace.wait:
                return
            self._pace.do(self._rebuild)
        self._tell(vigil)

    def _judge(self, vigil: Vigil) -> None:
        now = self._now
        if not vigil.evidence:
            self._let_in(vigil)
            return
        if vigil.since is None:
            vigil.since = now
            self._begin(vigil, now)
        vouched = vigil.beat and vigil.evidence == {Evidence.STREAMS}
        if not vigil.lost and now - vigil.since >= self._after * (VOUCHED if vouched else 1):
            self._give_up(vigil)

    def _tell(self, vigil: Vigil) -> None:
        """Tell those whom it concerns what has become of a worker, each once."""
        if vigil.since is None:
            return
        if vigil.lost and not vigil.told:
            vigil.moved = vigil.told = True
            self._doubt(vigil, lost=True)
            if vigil.beat:
                # Its feed may have lost its way: another connection finds one, if there is one.
                self._hears.verify(vigil.worker)
        elif not vigil.moved and self._known_for_long(vigil, self._now - vigil.since):
            vigil.moved = True
            self._doubt(vigil, lost=False)
            if Evidence.HOST in vigil.evidence:
                self._verify(vigil)

    def _known_for_long(self, vigil: Vigil, suspected: float) -> bool:
        """Whether what is known now of a worker has been known for long enough for what waits there to go."""
        evidence = vigil.evidence
        if evidence == {Evidence.CONNECTION}:
            return suspected >= SOON
        if not evidence <= {Evidence.STREAMS, Evidence.HOST}:
            return True
        if Evidence.HOST in evidence and self._sweep.clock.now - vigil.reach.since > RESENT - _EARLY:
            return True
        return Evidence.STREAMS in evidence and suspected >= STEP

    def _begin(self, vigil: Vigil, now: float) -> None:
        worker, evidence = vigil.worker, next(iter(vigil.evidence))
        if not worker.died:
            worker.died = self._sweep.loop.time() - vigil.silence(evidence, now)
        worker.bar(SUSPECT, self._due)
        self._hears.suspected(worker, evidence)
        if worker.standing.seen is not None and not worker.standing.dead:
            log.info("worker %s is suspect: %s", worker.name, _WHY[evidence])

    def _give_up(self, vigil: Vigil) -> None:
        vigil.lost = True
        worker = vigil.worker
        if not worker.standing.dead:
            log.warning("worker %s is given up: %s", worker.name, self._why(vigil))
        worker.bar(SILENT, self._due)

    def _let_in(self, vigil: Vigil) -> None:
        if vigil.lost and not vigil.worker.standing.dead:
            log.info("worker %s is heard again", vigil.worker.name)
        if vigil.since is None:
            return
        vigil.since = None
        vigil.moved = vigil.lost = vigil.told = False
        if not vigil.worker.standing.dead:
            vigil.worker.died = 0.0
        vigil.worker.unbar(SUSPECT, self._due)
        vigil.worker.unbar(SILENT, self._due)

    def _doubt(self, vigil: Vigil, *, lost: bool) -> None:
        """Let whoever waits there for an answer, or `lost` one, go elsewhere."""
        fault = fallen_silent(self._why(vigil))
        connections = vigil.worker.connections
        told = [partial(connection.doubt, fault, lost) for connection in connections.busy]
        told += [partial(doubted, fault.but(sent=False), lost) for doubted in connections.connecting]
        for tell in told:
            try:
                tell()
            except FAILURES:
                log.exception("a call could not leave worker %s", vigil.worker.name)

    def _why(self, vigil: Vigil) -> str:
        return " and ".join(_WHY[evidence] for evidence in Evidence if evidence in vigil.evidence)
