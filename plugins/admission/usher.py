"""Shows each call to a place at its pool's workers: what `admission` does with calls that need not wait.

Apart from the plugin, which is not compiled, so that its phases are these methods, with no step between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from tailrace.plugins.admission.desk import Desk, Place, Rank
from tailrace.proxy.asked import TOKEN_FIELDS
from tailrace.proxy.plugin import Key
from tailrace.proxy.service_class import ServiceClass

if TYPE_CHECKING:
    from tailrace.plugins.admission.settings import Config
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Pool
    from tailrace.proxy.outcome import Outcome

PLACE: Final[Key[Place]] = Key("place")
Wait = Callable[["Call", Desk, Rank, int], Coroutine[Any, Any, None] | None]


class Usher:
    """Of one chain in one process; `otherwise` is asked where no place is free, and may give what waits for one."""

    def __init__(self, config: Config, clock: Callable[[], int], otherwise: Wait) -> None:
        self.clock = clock
        self.desks: dict[Pool, Desk] = {}
        self.admitted = {each.name: 0 for each in config.classes}
        self._config = config
        self._otherwise = otherwise
        self._numbers = {each.name: number for number, each in enumerate(config.classes)}
        self._default = self._numbers[config.default] if config.default is not None else 0
        self._prioritised = frozenset([name for name, its in config.pools.items() if its.priority])
        self._processes = 1

    def enter(self, call: Call) -> Coroutine[Any, Any, None] | None:
        """Take a place; a coroutine that waits for one where none is free. Raises Reject(503)."""
        entry = call.entry
        if entry is None or call.route.local is not None:
            return None
        pool = entry.pool
        desk = self.desks.get(pool)
        if desk is None:
            self._processes = call.chain.processes
            desk = self.desks[pool] = Desk(self._config.classes, self.capacity(pool))
        fact = call.fact(ServiceClass)
        rank = desk.ranks[self._default if fact is None else self._numbers.get(fact.name, self._default)]
        if self._prioritised and pool.name in self._prioritised:
            _prioritise(call, rank.settings.priority)
        now = self.clock()
        place = desk.enter(call, rank, now)
        if place is None:
            return self._otherwise(call, desk, rank, now)
        self.seated(call, place)
        return None

    def seated(self, call: Call, place: Place) -> None:
        """A call has its place at once."""
        call[PLACE] = place
        self.admitted[place.rank.name] += 1

    def capacity(self, pool: Pool) -> int:
        """How many of the places at a pool's workers are this process's."""
        config = self._config
        its = config.pools.get(pool.name)
        places = (its.capacity if its is not None else None) or config.capacity
        if places is None:
            workers = pool.eligible or pool.workers
            places = sum([worker.standing.concurrency or config.per_worker for worker in workers])
        return max(1, math.ceil(places / self._processes))

    def completed(self, call: Call, outcome: Outcome) -> None:
        """Somebody else gets the place."""
        if PLACE in call:
            place = call[PLACE]
            if place.back is not None:
                place.back.cancel()
            place.desk.leave(call, self.clock())


def _prioritise(call: Call, priority: int) -> None:
    """Tell the engine, whatever the client says of itself."""
    body = call.body
    if body is None or call.route.name not in TOKEN_FIELDS:
        return
    if priority or body.has("priority"):
        call.edit("priority", b"%d" % priority)
