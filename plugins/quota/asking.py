"""How a process gets leases: one question to its host's authority for all that is wanted at the moment."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any, Final

from tailrace.plugins.quota.book import Book
from tailrace.plugins.quota.lease import Lease
from tailrace.plugins.quota.purse import Purse
from tailrace.plugins.quota.terms import Counter, heard
from tailrace.plugins.quota.waiting import Question
from tailrace.proxy.control import Gone, Refused
from tailrace.proxy.ground import Ground

log = logging.getLogger("tailrace")
Want = tuple[Counter, int, int]
"""What all that wait for a counter need of it, and the least that one of them does."""
Which = tuple[str, int]
"""A counter's name and the beginning of a window that is yet to come, 0 for the present one."""
_SWEEP: Final = 0.1
PATIENCE: Final = 0.1
"""Seconds that an authority may take which has answered so far; it takes a third of a millisecond."""


class Unanswered(Exception):  # noqa: N818 - an event of every outage
    """The authority did not answer in time, or does not know."""


class Asking:
    """A process's purse and the questions that keep it filled."""

    def __init__(self, ground: Ground, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ground = ground
        self.book = Book.create(ground.places.shared / "quota")
        self.purse = Purse(self.book, self._refill, self._given_up, monotonic)
        self._wanted: dict[Which, Want] = {}
        self._under_way: dict[Which, Question] = {}
        self._asked: dict[Which, Question] = {}
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
            which = counter.name, 0
            if self._silent and which in self._asked:
                # Nothing more is said to one that does not listen.
                waiting.append(self._asked[which])
                continue
            found = self._wanted.get(which)
            all_need, least = (0, need) if found is None else found[1:]
            # Whoever fills a lease up needs nothing by itself.
            self._want(which, (counter, all_need + need, min(least or need, need)))
            waiting.append(self._under_way[which])
        # One that has answered until now is busy, and waited for longer, once.
        limit = wait if self._silent else max(wait, PATIENCE)
        for question in waiting:
            if not await question.wait(limit):
                self._silent = True
                raise Unanswered
        if not all(question.known for question in waiting):
            raise Unanswered

    def _want(self, which: Which, want: Want) -> None:
        self._wanted[which] = want
        if which not in self._under_way:
            self._under_way[which] = Question()
        self._flush_soon()

    def _refill(self, lease: Lease, at: int) -> None:
        which = lease.counter.name, at
        if which not in self._wanted and which not in self._asked:
            self._want(which, (lease.counter, 0, 0))

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
        questions = {which: self._under_way.pop(which) for which in wanted}
        if slots:
            self._spawn(self._close(slots))
        if wanted:
            self._asked |= questions
            for name, _ in wanted:
                self.purse.asking(name)
            self._spawn(self._lease(wanted, questions))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self, slots: list[int]) -> None:
        try:
            await self._ground.ask("close", book=self.book.path.name, slots=slots)
        except (Refused, Gone):
            log.debug("%d leases are given back when this process ends", len(slots))

    async def _lease(self, wanted: dict[Which, Want], questions: dict[Which, Question]) -> None:
        answers: list[Any] = []
        try:
            wants = [self._lacking(*want, at) for (_, at), want in wanted.items()]
            answers = await self._ground.ask("lease", book=self.book.path.name, wants=wants)
            self._silent = False
        except (Refused, Gone) as error:
            log.debug("no leases: %r", error)
        for number, (which, (counter, _, _)) in enumerate(wanted.items()):
            answer = heard(answers[number]) if answers else None
            question = questions[which]
            if self._asked.get(which) is question:
                del self._asked[which]
            self.purse.hear(counter, answer, which[1])
            question.answered(known=answer is not None)

    def _lacking(self, counter: Counter, need: int, least: int, at: int) -> list[Any]:
        """What the authority is asked for, beyond what the lease still has."""
        room = 0 if at else self.purse.room(counter)
        return [astuple(counter), max(0, need - room), max(0, least - room), at]

    async def sweep(self) -> None:
        """Give back what lies idle and ask for what the next window needs, for as long as the process serves."""
        while True:
            await asyncio.sleep(_SWEEP)
            for _ in self.purse.sweeping():
                await asyncio.sleep(0)

    async def leave(self) -> None:
        """End: whatever was not spent is given back."""
        for task in self._tasks:
            task.cancel()
        try:
            await self._ground.ask("leave", book=self.book.path.name)
        except (Refused, Gone):
            log.debug("the book is given back to the next authority")
        self.book.close()
