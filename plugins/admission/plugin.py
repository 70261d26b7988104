"""Lets so many calls through to a pool's workers at once, and has the others wait, by class, tenant and deadline.

The workers' own queues stay short that way, and what waits here can still be ordered, moved and given up. A call that
has not begun to answer gives its place up where a class that `preempts` needs it, and waits once more.
Whoever would wait too long is refused at once, with the seconds after which there is likely to be room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from tailrace.plugins.admission.desk import Desk, Place, Rank
from tailrace.plugins.admission.line import Waiter
from tailrace.plugins.admission.settings import Config as _Config
from tailrace.plugins.admission.usher import PLACE, Usher
from tailrace.proxy.fault import FAILURES, PREEMPTED, Reject, Whose, fault_of
from tailrace.proxy.identity import Identity
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.repeatable import repeatable, seen
from tailrace.proxy.waiting import recheck

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

log: Final = logging.getLogger("tailrace")
_S: Final = 1_000_000_000
_LONGEST_TOLD: Final = 3600.0
LOOK: Final = 0.25
"""Seconds between two looks at how much the workers take."""


class Admission(Plugin[_Config]):
    """Stands behind whatever refuses calls, and before `route`.

    Calls that need not wait are all the `usher`'s, whose methods are compiled and called as they are.
    """

    Config = _Config

    def __init__(self, config: _Config, clock: Callable[[], int] = monotonic_ns) -> None:
        super().__init__(config)
        self.usher = Usher(config, clock, self._without_place)
        names = [each.name for each in config.classes]
        self._names = names
        self.waited = dict.fromkeys(names, 0)
        self.preempted = dict.fromkeys(names, 0)
        self.refused: dict[tuple[str, str], int] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows what the workers take."""
        looking = asyncio.ensure_future(self._look())
        try:
            yield
        finally:
            looking.cancel()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            for pool, desk in self.usher.desks.items():
                try:
                    desk.resize(self.usher.capacity(pool), self.usher.clock())
                    # Somebody may have waited long enough to go first, or wait in vain by now.
                    desk.fill(self.usher.clock())
                    self._sweep(desk)
                except Exception:
                    log.exception("the places of pool '%s' could not be looked at", pool.name)

    def _sweep(self, desk: Desk) -> None:
        for waiter in desk.foresight.hopeless(self.usher.clock()):
            if waiter.refuse is not None:
                waiter.refuse()

    @property
    def on_request(self) -> Callable[[Call], Coroutine[Any, Any, None] | None]:
        """Take a place; a coroutine that waits for one where none is free. Raises Reject(503)."""
        return self.usher.enter

    def _without_place(self, call: Call, desk: Desk, rank: Rank, now: int) -> Coroutine[Any, Any, None] | None:
        """No place is free: one is made so, or the call has to wait."""
        if rank.settings.preempts and not rank.line.count and self._preempt(desk, rank, now):
            place = desk.enter(call, rank, now)
            if place is not None:
                self.usher.seated(call, place)
                return None
        return self._wait(call, desk, rank, self._patience(call, desk, rank, now), now)

    def _patience(self, call: Call, desk: Desk, rank: Rank, now_ns: int) -> float:
        """How long a call may wait; raises Reject where that is in vain."""
        if rank.line.count >= rank.settings.queue:
            raise self._busy(desk, rank, "full", "As many calls wait as may.")
        limit = latest = rank.settings.wait
        time = call.time
        if time is not None:
            if time.queue_ns:
                limit = latest = min(limit, time.queue_ns / _S)
            left = time.left_ns(now_ns)
            if left is not None:
                # A place is of no use without the time to the first content.
                limit = min(limit, (left - time.ample_ns) / _S)
                latest = min(latest, (left - time.least_ns) / _S)
        if limit <= 0:
            raise self._busy(desk, rank, "late", "Nothing is left of its time to wait for its turn.")
        if not desk.foresight.in_time(rank, _tenant(call), _due(call, now_ns, latest), limit, now_ns):
            expected = desk.foresight.expected(rank, now_ns)
            text = f"It can wait {limit:.2g} s for its turn, which is not likely to come by then"
            text += f": {expected:.2g} s are expected." if expected < _LONGEST_TOLD else "."
            raise self._busy(desk, rank, "late", text)
        return latest

    async def _wait(self, call: Call, desk: Desk, rank: Rank, limit: float, now: int) -> None:
        turn: asyncio.Future[None] = call.client.loop.create_future()

        def wake() -> None:
            if not turn.done():
                turn.set_result(None)

        def refuse() -> None:
            if not turn.done():
                turn.set_exception(self._hopeless(desk, rank))

        until = now + int(limit * _S)
        waiter = Waiter(call, _tenant(call), _due(call, now, limit), now, wake, until, refuse)
        place = call[PLACE] = desk.queue(waiter, rank)
        self.waited[rank.settings.name] += 1
        async with call.waiting():
            try:
                async with asyncio.timeout(limit):
                    await turn
            except TimeoutError:
                # The turn may have come in the same moment.
                if place.waiter is not None:
                    raise self._busy(desk, rank, "waited", f"No place came free within {limit:.3g} s.") from None
        self.usher.admitted[rank.settings.name] += 1

    def _hopeless(self, desk: Desk, rank: Rank) -> Reject:
        return self._busy(desk, rank, "late", "Its turn would come later than it can wait, as it turns out.")

    def _busy(self, desk: Desk, rank: Rank, why: str, message: str) -> Reject:
        kind = (rank.settings.name, why)
        self.refused[kind] = self.refused.get(kind, 0) + 1
        wait = desk.pace.wait_for(desk.ahead(rank) + 1)
        return Reject(503, "gateway_overloaded", message, retry_after=wait, whose=Whose.GATEWAY, kind="overloaded")

    # Places that are given up.

    def _preempt(self, desk: Desk, rank: Rank, now: int) -> bool:
        """Have a call that has not begun to answer wait once more; whether one did."""
        for call, place in desk.victims(rank):
            race = call.race
            if race is None or place.back is not None or (seen(call.tries) and not repeatable(call)):
                continue
            if not race.recall(PREEMPTED):
                continue
            self._put_back(call, desk, place, now)
            return True
        return False

    def _put_back(self, call: Call, desk: Desk, place: Place, now: int) -> None:
        settings = place.rank.settings
        self.preempted[settings.name] += 1

        def go_on() -> None:
            if place.back is not None:
                place.back.cancel()
            took = self.usher.clock() - now
            call.waited_ns += took
            call.requeued_ns += took
            if call.race is None:
                return
            try:
                call.stride.within(recheck, call)
            except FAILURES as error:
                call.stop(fault_of(error))
            else:
                call.race.resume()

        def give_up() -> None:
            text = f"Its place was needed, and no other came free within {settings.wait:g} s."
            call.stop(self._busy(desk, place.rank, "waited", text).fault)

        def refuse() -> None:
            call.stop(self._hopeless(desk, place.rank).fault)

        # It goes on where it was in its tenant's order, and its wait counts from its first moment.
        due, until = _due(call, now, settings.wait), now + int(settings.wait * _S)
        desk.give_up(call, Waiter(call, _tenant(call), due, call.started_ns, go_on, until, refuse))
        place.back = call.client.loop.call_later(settings.wait, give_up)

    @property
    def on_complete(self) -> Callable[[Call, Outcome], None]:
        """Somebody else gets the place."""
        return self.usher.completed

    def metrics(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Who got in, who waits, who was sent away or back."""
        for name in self._names:
            labels = {"class": name}
            yield "admitted_total", labels, self.usher.admitted[name]
            yield "waited_total", labels, self.waited[name]
            yield "preempted_total", labels, self.preempted[name]
        for (name, why), count in self.refused.items():
            yield "refused_total", {"class": name, "why": why}, count
        yield "promoted_total", {}, sum([desk.promoted for desk in self.usher.desks.values()])
        for pool, desk in self.usher.desks.items():
            yield "places", {"pool": pool.name}, desk.capacity
            for rank in desk.ranks:
                labels = {"pool": pool.name, "class": rank.settings.name}
                yield "inside", labels, len(rank.inside)
                yield "waiting", labels, rank.line.count


def _tenant(call: Call) -> str:
    identity = call.fact(Identity)
    return "" if identity is None else identity.tenant


def _due(call: Call, now_ns: int, limit: float) -> int:
    """When a call has to have its place; one of which nothing is said, when it would be sent away."""
    due = call.time.due_ns if call.time is not None else 0
    return due or now_ns + int(limit * _S)
