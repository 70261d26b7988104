"""The keeper: a thread beside the processes that makes what they settled durable, and settles what the dead left open.

Each round takes the new settlements of all rings, writes them to the log as one batch, and only then lets the rings use
those slots again. So whatever fails (a full disk, the keeper itself) fails before anything is forgotten, and the next
round, or the next keeper, does it again. The log says which records it has, for the one that was killed in between.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tailrace.proxy.ledger.ages import Ages
from tailrace.proxy.ledger.entry import WHEN, Entry
from tailrace.proxy.ledger.lately import Batch, Lately
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.ring import PREFIX
from tailrace.proxy.ledger.slots import NoRing, Slots, clear_unborn
from tailrace.proxy.ledger.totals import Totals

log = logging.getLogger("tailrace")

PERIOD = 0.015
"""Of the 20 ms within which a settlement begins to be made durable, as a wake-up may be late. Each round costs a sync
and caches gone cold, whatever it finds."""
PROMPT = 0.01
"""Where answers wait for it."""

_SHORTEST = 0.001
_GRAIN = 100_000_000
"""A folder that was changed so long ago has got nothing new since, however coarse its clock is; in nanoseconds."""
_MOST = 20_000
_PATIENCE = 100
"""Rounds for which a settlement may be unreadable: longer than any processor holds back a store."""


@dataclass(slots=True)
class _Taken:
    """What one round has of one ring."""

    ring: Slots
    entries: list[Entry]
    durable: int
    done: bool = False


class Keeper:
    """Everything is done in `round`, on its own thread between `start` and `close`; the rest may be read from any."""

    def __init__(self, shared: Path, ledger: Log, *, lately: Lately | None = None, period: float = PERIOD) -> None:
        """`lately` is told of what has become durable."""
        self.log = ledger
        self.ages = Ages()
        self.totals = Totals()
        self.orphans = 0
        self.records = 0
        self.trouble = ""
        """Why nothing can be made durable now; empty while all is well."""
        self.refused = 0
        """How often a process had no slot for a record."""
        self.period = period
        """Seconds between the beginnings of two rounds; may be changed."""
        self.waiting = 0
        """How many settlements were not durable after the last round."""
        self._round_ended = time.monotonic()
        self._shared = shared
        self._lately = lately
        self._rings: dict[str, Slots] = {}
        self._refused_by_gone = 0
        self._strange: set[str] = set()
        self._unreadable: dict[str, int] = {}
        self._stop = threading.Event()
        self._runner: threading.Thread | None = None
        self._seen = 0
        clear_unborn(shared)
        self._find()
        # The one before may have been killed between the log and the ring.
        self._known = ledger.recent(sum(ring.slots for ring in self._rings.values())) if self._rings else set()

    def start(self) -> None:
        """Begin to go round."""
        self._runner = threading.Thread(target=self._run, name="tailrace-ledger", daemon=True)
        self._runner.start()

    def close(self) -> None:
        """One round more, and an end; what could not be written stays in its ring for the next keeper."""
        self._stop.set()
        if self._runner is not None:
            self._runner.join()
        self._go_round()
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()
        self.log.close()

    @property
    def stalled_seconds(self) -> float:
        """How long ago the last round ended: a disk that stands still says nothing, it just does not come back."""
        return time.monotonic() - self._round_ended

    def _run(self) -> None:
        pause = self.period
        while not self._stop.wait(pause):
            begun = time.monotonic()
            self._go_round()
            # Rounds begin a period apart: what is settled during a slow sync need not wait for more than the next.
            pause = max(self.period - (time.monotonic() - begun), _SHORTEST)

    def _go_round(self) -> None:
        try:
            self.round()
        except OSError as error:
            self._fail(error.strerror or str(error))
        except Exception as error:
            log.exception("the ledger's keeper failed, and tries again")
            self._fail(f"{type(error).__name__}: {error}")
        self._round_ended = time.monotonic()
        self.refused = self._refused_by_gone + sum(ring.refused for ring in self._rings.values())
        self.waiting = sum(ring.settled - ring.durable for ring in self._rings.values())

    def _fail(self, why: str) -> None:
        if not self.trouble:
            log.error("the ledger cannot be written: %s; what is settled waits in memory", why)
        self.trouble = f"the ledger cannot be written: {why}"

    def round(self) -> int:
        """Make durable what is settled, and how many records that were; raises OSError, and then nothing is lost."""
        self._find()
        taken = [self._take(ring) for ring in tuple(self._rings.values())]
        known = self._known
        fresh = [entry for each in taken for entry in each.entries if not known or entry.charge_key not in known]
        if fresh:
            self._enter(fresh)
        else:
            self.log.close_if_due()
        for each in taken:
            each.ring.durable = each.durable
            if each.done:
                self._forget(each.ring)
        if self.trouble:
            log.warning("the ledger is written again")
            self.trouble = ""
        return len(fresh)

    def _enter(self, fresh: list[Entry]) -> None:
        """Write records to the log, and tell of them once that is done."""
        begins = self.log.append([entry.text() for entry in fresh])
        if self._lately is not None:
            self._lately.add(Batch(begins, self.log.durable[1], self.log.head, fresh))
        now = time.time_ns()
        ages, totals = self.ages, self.totals
        for entry in fresh:
            if entry.words.orphan:
                self.orphans += 1
            else:
                ages.add(now - entry.numbers[WHEN])
            totals.add(entry)
        self.records += len(fresh)

    def _find(self) -> None:
        """Take up rings that are new."""
        changed = self._shared.stat().st_mtime_ns
        if changed == self._seen and time.time_ns() - changed > _GRAIN:
            return
        self._seen = changed
        for entry in os.scandir(self._shared):
            if entry.name in self._rings or entry.name in self._strange or not entry.name.startswith(PREFIX):
                continue
            try:
                self._rings[entry.name] = Slots(Path(entry.path))
            except (NoRing, ValueError) as error:
                self._strange.add(entry.name)
                log.error("the ledger leaves %s alone: %s", entry.path, error)
            except OSError as error:
                # It may do later: too many files are open, or the process has ended already.
                self._seen = 0
                log.debug("the ledger cannot open %s now: %s", entry.path, error)

    def _take(self, ring: Slots) -> _Taken:
        # In this order: what a process settles after it was seen alive is the next round's.
        dead = ring.dead()
        settled = ring.settled
        number = ring.durable
        taken = _Taken(ring, [], number)
        while number < settled and len(taken.entries) < _MOST:
            entry = ring.settlement(number)
            if entry is None and not self._give_up(ring, ring.queued_slot(number), number):
                break
            if entry is not None:
                taken.entries.append(entry)
            number += 1
        taken.durable = number
        if dead and number == settled:
            for slot, entry in ring.left_open(time.time_ns()):
                if entry is None:
                    self._set_aside(ring, slot)
                else:
                    taken.entries.append(entry)
            taken.done = True
        return taken

    def _give_up(self, ring: Slots, slot: int, number: int) -> bool:
        """Whether a settlement that cannot be read will never be; its bytes are kept then."""
        place = f"{ring.ident}-{number}"
        self._unreadable[place] = self._unreadable.get(place, 0) + 1
        if self._unreadable[place] < _PATIENCE:
            return False
        del self._unreadable[place]
        self._set_aside(ring, slot)
        return True

    def _set_aside(self, ring: Slots, slot: int) -> None:
        """Keep the bytes of a record that memory has damaged, for a person to look at."""
        path = self.log.folder / f"damaged-{ring.ident}-{slot}.bin"
        path.write_bytes(ring.raw(slot))
        log.error("a record of process %d was damaged in memory, and is kept in %s", ring.pid, path)

    def _forget(self, ring: Slots) -> None:
        del self._rings[ring.path.name]
        self._refused_by_gone += ring.refused
        ring.remove()
