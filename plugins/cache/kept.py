"""What `cache` keeps: in the memory of its process, or in a store that others share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from tailrace.plugins.cache.chosen import Chosen
from tailrace.plugins.cache.remote import Remote
from tailrace.proxy.control import Refused
from tailrace.proxy.stored.answer import Answer
from tailrace.proxy.stored.keeping import ended_well, stored_form
from tailrace.proxy.stored.shelf import Shelf

if TYPE_CHECKING:
    from tailrace.plugins.cache.desk import Asked
    from tailrace.plugins.cache.settings import Config
    from tailrace.proxy.call import Call
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.outcome import Outcome

_SLICE: Final = 1000
"""Entries that are looked at in one turn of the loop."""
_ON_ITS_WAY: Final = 2.0
"""Seconds that an answer may take to a store, where whoever asks for it meanwhile would not find it."""
_BESIDE_A_STORE: Final = 16 << 20
_shelves: WeakKeyDictionary[asyncio.AbstractEventLoop, Shelf] = WeakKeyDictionary()


def shelf_here(limit: int) -> Shelf:
    """The one of this process, which outlives configurations; what is in it says for whom and how long."""
    loop = asyncio.get_running_loop()
    shelf = _shelves.get(loop)
    if shelf is None:
        shelf = _shelves[loop] = Shelf(limit)
    shelf.resize(limit)
    return shelf


class Kept:
    """The answers of one configuration."""

    def __init__(self, shelf: Shelf, config: Config, remote: Remote | None) -> None:
        self._shelf = shelf
        self._config = config
        self.remote = remote
        self._stored = self._unfit = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Config) -> AsyncIterator[Kept]:
        """What is kept, while the plugin runs."""
        if config.valkey is None:
            yield cls(shelf_here(config.memory), config, None)
            return
        async with Remote.connected(config.valkey, config.stale) as remote:
            yield cls(shelf_here(min(config.memory, _BESIDE_A_STORE)), config, remote)

    def get(self, asked: Asked) -> Answer | None:
        """What is kept in memory for a request: with a store, only what is on its way there."""
        shelf = self._shelf
        found = shelf.get(asked.key, asked.check) if shelf.has(asked.key) else None
        if found is not None and self.remote is not None and found.made_at < time.time() - _ON_ITS_WAY:
            return None
        return found

    async def fetch(self, asked: Asked) -> Answer | None:
        """What is kept in the store; one that is out of date stays with the request."""
        assert self.remote is not None
        found = await self.remote.get(asked)
        if found is not None and self.remote.is_old(found):
            asked.old, found = found, None
        return found

    def old(self, asked: Asked) -> Answer | None:
        """What is kept though it is out of date."""
        if self.remote is not None:
            return asked.old
        return self._shelf.get(asked.key, asked.check, late=self._config.stale)

    def keep(self, call: Call, outcome: Outcome, asked: Asked, now: float) -> None:
        """Keep the answer of a call that led, if it is whole and that of its own model."""
        publication = asked.publication
        assert publication is not None
        taken = None if publication.ended else publication.taken
        if taken is None or not ended_well(call, outcome) or call.started_ns < self._shelf.purged_ns:
            self._unfit += 1
            return
        usage = outcome.usage
        body = stored_form(call, taken, streamed=publication.streams, usage=usage, choices=asked.choices)
        if body is None:
            self._unfit += 1
            return
        until = now + self._config.ttl
        answer = Answer(body, asked.check, now, until, asked.scope, asked.model, asked.route)
        if usage is not None:
            answer.prompt, answer.completion, answer.cached = usage.prompt, usage.completion, usage.cached
        self._stored += 1
        self._shelf.put(asked.key, answer)
        if self.remote is not None:
            self.remote.put(asked, answer, call.started_ns)

    async def answer(self, chain: Chain, question: str, fields: dict[str, Any]) -> Any:
        """Answer the admin port; raises Refused."""
        if question == "stats":
            here: dict[str, Any] = {"entries": len(self._shelf), "bytes": self._shelf.size}
            return here if self.remote is None else {"store_entries": await self.remote.count()}
        if question != "purge":
            raise Refused(f"cache has no answer to '{question}'")
        chosen = Chosen.of(chain, fields)
        self._shelf.purged_ns = time.monotonic_ns()
        purged = await self._purge(chosen)
        return {"purged": purged} if self.remote is None else {"store_purged": await self.remote.purge(chosen)}

    async def _purge(self, chosen: Chosen) -> int:
        shelf = self._shelf
        purged = 0
        for count, key in enumerate(shelf.keys()):
            answer = shelf.look(key)
            if answer is not None and chosen.matches(key, answer):
                shelf.drop(key)
                purged += 1
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        return purged

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """What is kept here, and what was not."""
        yield "stored_total", {}, self._stored
        yield "unfit_total", {}, self._unfit
        if self.remote is None:
            yield "entries", {}, len(self._shelf)
            yield "bytes", {}, self._shelf.size
            yield "evicted_total", {}, self._shelf.evicted
        else:
            yield from self.remote.metrics()
