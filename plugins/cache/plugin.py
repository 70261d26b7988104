"""The `cache` plugin in a process: gives again what was given before, and lets identical calls share one answer.

A call that finds nothing kept leads: what its worker answers is published to identical calls that come meanwhile, and
kept if it is whole. Those calls follow it. Where it comes to nothing, the first of them leads, and the others follow
that one.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from tailrace.plugins.cache.desk import ASKED, REASONS, TOLD, Asked, Desk, concerns
from tailrace.plugins.cache.flights import Flights
from tailrace.plugins.cache.kept import Kept
from tailrace.plugins.cache.settings import Config as _Config
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.identity import Identity
from tailrace.proxy.outcome import Ending
from tailrace.proxy.plugin import Needs, Plugin
from tailrace.proxy.stored.answer import Answer
from tailrace.proxy.stored.giving import given
from tailrace.proxy.stored.keeping import unfit
from tailrace.proxy.stored.remembered import Remembered
from tailrace.proxy.stored.sources import OUT_OF_DATE
from tailrace.proxy.stored.wishes import HEADER, wishes_of

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.head import Head
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.publication import Publication
    from tailrace.proxy.reply import Reply

_HIT: Final = b"hit"
_MISS: Final = b"miss"
_FOLLOW: Final = b"follow"
_BYPASS: Final = b"bypass"
_LEADERS: Final = 2
"""Whom a call follows at most, one after the other."""


class Cache(Plugin[_Config]):
    """Answers from what is kept, follows what is under way, or leads."""

    Config = _Config
    needs = Needs.USAGE
    heeds = (Identity,)

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._desk = Desk(config.scope, always=config.always)
        self._flights = Flights()
        self._kept: Kept | None = None
        self._told = dict.fromkeys((_HIT, _MISS, _FOLLOW), 0)
        self._passed = dict.fromkeys(REASONS, 0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Holds this process's answers, which outlive a reload, and the connection to a store."""
        async with Kept.open(self.config) as kept:
            self._kept = kept
            yield

    def on_request(self, call: Call) -> Reply | Coroutine[Any, Any, Reply | None] | None:
        """Answer at once, wait for an answer that is under way, or lead."""
        kept = self._kept
        if kept is None or not concerns(call):
            return None
        asked = self._desk.asked(call)
        if isinstance(asked, str):
            self._pass(call, asked, only=wishes_of(call).only)
            return None
        if kept.remote is not None and asked.wishes.reads:
            return self._look_far(call, asked, kept)
        return self._hit(call, asked, kept) or self._share(call, asked)

    def _pass(self, call: Call, why: str, *, only: bool = False) -> None:
        """Have nothing to do with a call."""
        self._passed[why] += 1
        call[TOLD] = _BYPASS
        if only:
            raise _not_kept()

    async def _look_far(self, call: Call, asked: Asked, kept: Kept) -> Reply | None:
        """The same with a store that has to be asked."""
        found = kept.get(asked) or await kept.fetch(asked) or kept.get(asked)
        reply = None if found is None else self._reply(call, asked, found)
        if reply is None:
            shared = self._share(call, asked)
            return shared if shared is None else await shared
        return reply

    def _hit(self, call: Call, asked: Asked, kept: Kept) -> Reply | None:
        if not asked.wishes.reads:
            return None
        found = kept.get(asked)
        return None if found is None else self._reply(call, asked, found)

    def _reply(self, call: Call, asked: Asked, found: Answer) -> Reply | None:
        reply = None
        if asked.wishes.take(found):
            reply = given(call.route.name, found, asked.manner, pace=self.config.pace)
        if reply is not None:
            self._told[_HIT] += 1
            call[TOLD] = _HIT
        return reply

    def _share(self, call: Call, asked: Asked) -> Coroutine[Any, Any, Reply | None] | None:
        """Follow who leads, or lead."""
        if asked.wishes.only:
            raise _not_kept()
        if asked.wishes.reads and self._flights.leader_of(asked) is not None:
            return self._follow(call, asked)
        self._lead(call, asked)
        return None

    def _lead(self, call: Call, asked: Asked) -> None:
        self._told[_MISS] += 1
        call[TOLD] = _MISS
        asked.publication = call.publish(self.config.largest)
        self._flights.begin(asked)
        call[ASKED] = asked
        if self.config.stale:
            call.provide(Remembered(lambda: self._old(call, asked)))

    async def _follow(self, call: Call, asked: Asked) -> Reply | None:
        kept = self._kept
        assert kept is not None
        call[TOLD] = _FOLLOW  # a heartbeat may say so before there is an answer
        # The next after some that came to nothing has no better prospects: then each asks for itself, all at once.
        for _ in range(_LEADERS):
            leader = self._flights.leader_of(asked)
            if leader is None:
                break
            reply = await self._flights.follow(call, asked, leader)
            if reply is not None:
                self._told[_FOLLOW] += 1
                return reply
            assert leader.publication is not None
            why = leader.publication.withheld
            if why in REASONS:
                self._pass(call, why)
                return None
            if why:
                break  # it is another model's
        # The one that led has come to nothing, or ended while this one was on its way.
        reply = self._hit(call, asked, kept)
        if reply is None:
            self._lead(call, asked)
        return reply

    def _old(self, call: Call, asked: Asked) -> Reply | None:
        """An answer that is out of date, if there is one yet and the client takes it."""
        kept = self._kept
        found = None if kept is None or not asked.wishes.reads else kept.old(asked)
        if found is None or not asked.wishes.take(found):
            return None
        return given(call.route.name, found, asked.manner, source=OUT_OF_DATE)

    def on_answer(self, call: Call, head: Head) -> None:
        """Say how the answer came about."""
        if TOLD in call:
            head.set(HEADER, _HIT if call.source == OUT_OF_DATE else call[TOLD])

    def on_stream(self, call: Call, head: Head) -> Publication | None:
        """Publish a good answer."""
        if ASKED not in call or call.source:
            return None
        publication = call[ASKED].publication
        if publication is None:
            return None
        if head.status != 200:
            publication.close()
            return None
        why = unfit(call)
        if why is not None:
            publication.withhold(why)
            return None
        return publication.tap(head)

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Keep what is whole; nobody joins it any more."""
        if ASKED not in call:
            return
        asked = call[ASKED]
        self._flights.end(asked)
        kept = self._kept
        if kept is not None and outcome.ending is Ending.COMPLETED and asked.publication is not None:
            kept.keep(call, outcome, asked, time.time())

    async def asked(self, chain: Chain, question: str, fields: dict[str, Any]) -> Any:
        """What the admin port wants to know, or to have thrown away."""
        if question == "purge":
            self._flights.forget()
        return None if self._kept is None else await self._kept.answer(chain, question, fields)

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """How calls were answered, and what is kept."""
        for how, count in self._told.items():
            yield "answers_total", {"how": how.decode()}, count
        for why, count in self._passed.items():
            yield "bypasses_total", {"why": why}, count
        if self._kept is not None:
            yield from self._kept.metrics()


def _not_kept() -> Reject:
    return Reject(504, "not_cached", "Nothing is kept that answers this request.", whose=Whose.GATEWAY)
