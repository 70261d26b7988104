"""Answers in a Valkey or Redis that others share, spoken to by aiocache. One that is slow or away keeps nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from tailrace.plugins.cache.chosen import Chosen, path_of
from tailrace.proxy.control import Refused
from tailrace.proxy.logs import Seldom
from tailrace.proxy.stored.answer import Answer, packed, unpacked
from tailrace.proxy.stored.canonical import SCHEMA

if TYPE_CHECKING:
    from aiocache.backends.redis import RedisCache
    from tailrace.plugins.cache.desk import Asked
    from tailrace.plugins.cache.settings import StoreSettings

log: Final = logging.getLogger("tailrace")
_PATIENCE: Final = 1.0
"""Seconds for what no call waits for."""
_PAUSE: Final = 0.25
"""Seconds between two looks at a store that does not answer."""
_TELL_EVERY: Final = 10.0
_PAGE: Final = 1000
_MARKED: Final = 86_400
"""Seconds; no call takes longer."""


class Remote:
    """The store as one process sees it; what is written waits in a line of its own."""

    def __init__(self, cache: RedisCache, settings: StoreSettings, stale: float) -> None:
        self._cache = cache
        self._beginning = f"{settings.prefix}:{SCHEMA.decode()}:"
        self._mark = f"{settings.prefix}:purged"
        self._wait = settings.wait_ms / 1000
        self._stale = stale
        self._line: asyncio.Queue[tuple[str, Answer, int]] = asyncio.Queue(settings.waiting)
        self._troubles = Seldom(_TELL_EVERY)
        self._writing = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self.errors = {"read": 0, "write": 0}
        self.dropped = 0
        self.skipped = 0

    @classmethod
    @asynccontextmanager
    async def connected(cls, settings: StoreSettings, stale: float) -> AsyncIterator[Remote]:
        """The store while the plugin runs; whether it answers is found out on the way."""
        cache = _cache_of(settings)
        remote = cls(cache, settings, stale)
        remote._look_for_it()
        writing = asyncio.ensure_future(remote._write())
        try:
            yield remote
        finally:
            for task in (writing, remote._looking):
                if task is not None:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
            with suppress(Exception):
                await cache.client.aclose()

    def _key(self, asked: Asked) -> str:
        return self._beginning + path_of(asked.scope, asked.model, asked.route, asked.key)

    async def get(self, asked: Asked) -> Answer | None:
        """What is kept for a request; None too where that is not told in time."""
        if self._looking is not None:
            self.skipped += 1
            return None
        try:
            async with asyncio.timeout(self._wait):
                found = await self._cache.get(self._key(asked), timeout=0)
        except Exception as error:
            self._failed("read", error)
            self._look_for_it()
            return None
        answer = unpacked(found) if isinstance(found, bytes) else None
        return answer if answer is not None and answer.check == asked.check else None

    @property
    def answers(self) -> bool:
        """Whether it did when it was last asked."""
        return self._looking is None

    def _look_for_it(self) -> None:
        """Let no call wait until the store answers again: each would wait in vain, and break off what connects."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._cache.client.ping()
                self._looking = None
                return
            except Exception:
                await asyncio.sleep(_PAUSE)

    def is_old(self, answer: Answer) -> bool:
        """Whether an answer is out of date."""
        return answer.until < time.time()

    def put(self, asked: Asked, answer: Answer, began_ns: int) -> None:
        """Have the answer to a call that began then written when its turn comes."""
        try:
            self._line.put_nowait((self._key(asked), answer, began_ns))
        except asyncio.QueueFull:
            self.dropped += 1

    async def _write(self) -> None:
        while True:
            key, answer, began_ns = await self._line.get()
            seconds = answer.until + self._stale - time.time()
            if seconds <= 0:
                continue
            try:
                async with self._writing:
                    await self._cache.set(key, packed(answer), ttl=seconds, timeout=_PATIENCE)
                    async with asyncio.timeout(_PATIENCE):
                        await self._take_back(key, began_ns)
            except Exception as error:
                self._failed("write", error)
                await asyncio.sleep(_PAUSE)

    async def _take_back(self, key: str, began_ns: int) -> None:
        """Take out what was just written if another host had answers thrown away since the call for it began.

        Whoever does so leaves its mark before it looks, so that it finds what is not taken back here.
        """
        client: Any = self._cache.client
        mark = await client.get(self._mark)
        if mark is not None:
            age = (time.monotonic_ns() - began_ns) / 1e9
            if await _time_of(client) - age <= float(mark):
                await client.unlink(key)

    def _failed(self, what: str, error: Exception) -> None:
        self.errors[what] += 1
        if self._troubles.due():
            told = type(error).__name__
            log.warning("the store of answers could not be %s: %s%s", _DONE[what], told, self._troubles.more())

    async def count(self) -> int:
        """How many answers are in it; raises Refused where it does not answer."""
        count = 0
        async for keys in self._pages("*"):
            count += len(keys)
        return count

    async def purge(self, chosen: Chosen) -> int:
        """Throw answers away; raises Refused where the store does not answer."""
        while not self._line.empty():
            self._line.get_nowait()  # they may be some of them, and would come after it
        purged = 0
        async with self._writing:  # what is on its way is there then
            await self._in_time(self._leave_mark())
        async for keys in self._pages(chosen.pattern()):
            gone = [key for key in keys if chosen.matches_path(key[len(self._beginning) :].decode())]
            if gone:
                purged += await self._in_time(self._cache.client.unlink(*gone))
        return purged

    async def _leave_mark(self) -> None:
        """Say to other hosts that what they are about to write may have to go."""
        client: Any = self._cache.client
        await client.set(self._mark, repr(await _time_of(client)), ex=_MARKED)

    async def _pages(self, pattern: str) -> AsyncIterator[list[bytes]]:
        client: Any = self._cache.client
        cursor = 0
        while True:
            cursor, keys = await self._in_time(client.scan(cursor, match=self._beginning + pattern, count=_PAGE))
            yield keys
            if not cursor:
                return

    async def _in_time(self, answer: Awaitable[Any]) -> Any:
        """What the store answers; raises Refused where it does not."""
        try:
            async with asyncio.timeout(_PATIENCE):
                return await answer
        except Exception as error:
            self._failed("read", error)
            raise Refused("the store of answers does not answer") from error

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """How the store does."""
        for what, count in self.errors.items():
            yield "store_errors_total", {"what": what}, count
        yield "store_up", {}, float(self.answers)
        yield "store_skipped_total", {}, self.skipped
        yield "store_dropped_total", {}, self.dropped
        yield "store_waiting", {}, self._line.qsize()


async def _time_of(client: Any) -> float:
    """The time by the store's own clock: those of hosts differ."""
    seconds, micros = await client.time()
    return float(seconds) + float(micros) / 1e6


_DONE: Final = {"read": "read", "write": "written to"}


def _cache_of(settings: StoreSettings) -> RedisCache:
    """A client of aiocache's; it connects with the first question."""
    from aiocache.backends.redis import RedisCache
    from aiocache.serializers import NullSerializer
    from redis.asyncio import BlockingConnectionPool, Redis

    cache = RedisCache(serializer=NullSerializer(encoding=None), timeout=_PATIENCE)
    # Its own settings know neither sockets of a system nor a limit on answers.
    pool = BlockingConnectionPool.from_url(
        settings.url.reveal(),
        max_connections=32,
        timeout=_PATIENCE,
        socket_timeout=_PATIENCE,
        socket_connect_timeout=_PATIENCE,
    )
    cache.client = Redis.from_pool(pool)
    return cache
