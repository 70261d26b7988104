"""How a process gets leases: one question to its host's authority for all that is wanted at the moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, Final

from tailrace.plugins.quota.authority import Counter
from tailrace.plugins.quota.book import Book
from tailrace.plugins.quota.part import heard
from tailrace.plugins.quota.purse import Lease, Purse
from tailrace.proxy.control import Gone, Refused
from tailrace.proxy.ground import Ground

log = logging.getLogger("tailrace")
Want = tuple[Counter, int, int]
"""What all that wait for a counter need of it, and the least that one of them does."""
_SWEEP: Final = 0.1
_SLICE: Final = 0.005
LONGEST: Final = 1.0
PATIENCE: Final = 0.1
"""Seconds that an authority may take which has answered so far; it takes a third of a millisecond."""


class Unanswered(Exception):  # noqa: N818 - an event of every outage
    """The authority did not answer in time, or does not know."""


async def _all_done(waiting: Sequence[asyncio.Future[None]], limit: float) -> bool:
    """Wait for answers; time in which this event loop was too busy to look at what had come does not count."""
    loop = asyncio.get_running_loop()
    waited = 0.0
    last = loop.time() + LONGEST
    pending: set[asyncio.Future[None]] = set(waiting)
    while pending and waited < limit and loop.time() < last:
        slice_of = min(limit, _SLICE)
        began = loop.time()
        _, pending = await asyncio.wait(pending, timeout=slice_of)
        if loop.time() - began < 2 * slice_of:
            waited += slice_of
    return not pending


class Asking:
    """A process's purse and the questions that keep it filled."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.book = Book.create(ground.places.shared / "quota")
        self.purse = Purse(self.book, self._refill, self._given_up)
        self._wanted: dict[str, Want] = {}
        self._under_way: dict[str, asyncio.Future[None]] = {}
        self._slots: list[int] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._flushing = False
        self._silent = False

    async def join(self) -> None:
        """Tell the authority of this process's book."""
        await self._ground.ask("join", book=self.book.path.name)

    async def fetch(self, wants: Sequence[tuple[Counter, int]], wait: float) -> None:
        """Ask for what is short, together with whoever else is asking; raises Unanswered."""
        waiting = []
        for counter, need in wants:
            found = self._wanted.get(counter.name)
            all_need, least = (0, need) if found is None else found[1:]
            # Whoever fills a lease up needs nothing by itself.
            self._wanted[counter.name] = counter, all_need + need, min(least or need, need)
            if counter.name not in self._under_way:
                self._under_way[counter.name] = asyncio.get_running_loop().create_future()
            waiting.append(self._under_way[counter.name])
        self._flush_soon()
        # One that has answered until now is busy, and waited for longer, once.
        if not await _all_done(waiting, wait if self._silent else max(wait, PATIENCE)):
            self._silent = True
            raise Unanswered
        if any(future.exception() is not None for future in waiting):
            raise Unanswered

    def _refill(self, lease: Lease) -> None:
        name = lease.counter.name
        if name not in self._under_way:
            self._wanted[name] = lease.counter, 0, 0
            self._under_way[name] = asyncio.get_running_loop().create_future()
            self._flush_soon()

    def _given_up(self, at: int) -> None:
        self._slots.append(at)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        slots, self._slots = self._slots, []
        wanted, self._wanted = self._wanted, {}
        futures = {name: self._under_way.pop(name) for name in wanted}
        if slots:
            self._spawn(self._close(slots))
        if wanted:
            self._spawn(self._lease(list(wanted.values()), futures))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self, slots: list[int]) -> None:
        try:
            await self._ground.ask("close", book=self.book.path.name, slots=slots)
        except (Refused, Gone):
            log.debug("%d leases are given back when this process ends", len(slots))

    async def _lease(self, wants: list[Want], futures: dict[str, asyncio.Future[None]]) -> None:
        answers: list[Any] = []
        try:
            answers = await self._ground.ask(
                "lease",
                book=self.book.path.name,
                wants=[self._lacking(*want) for want in wants],
            )
            self._silent = False
        except (Refused, Gone) as error:
            log.debug("no leases: %r", error)
        for number, (counter, _, _) in enumerate(wants):
            answer = heard(answers[number]) if answers else None
            future = futures[counter.name]
            if answer is None:
                self.purse.unheard(counter)
                future.set_exception(Unanswered())
                future.exception()  # nobody may be waiting
            else:
                self.purse.hear(counter, answer)
                future.set_result(None)

    def _lacking(self, counter: Counter, need: int, least: int) -> list[Any]:
        """What the authority is asked for, beyond what the lease still has."""
        room = self.purse.room(counter)
        return [astuple(counter), max(0, need - room), max(0, least - room)]

    async def sweep(self) -> None:
        """Give back what lies idle, for as long as the process serves."""
        while True:
            await asyncio.sleep(_SWEEP)
            self.purse.sweep()

    async def leave(self) -> None:
        """End: whatever was not spent is given back."""
        for task in self._tasks:
            task.cancel()
        try:
            await self._ground.ask("leave", book=self.book.path.name)
        except (Refused, Gone):
            log.debug("the book is given back to the next authority")
        self.book.close()
