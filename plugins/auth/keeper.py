"""What `auth` runs once on a host: it follows the stores of keys and the key sets of issuers for all processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tailrace.plugins.auth.board import Board
from tailrace.plugins.auth.follow import Following, Store
from tailrace.plugins.auth.key_sets import KeySets
from tailrace.plugins.auth.keys_file import FileKeys
from tailrace.plugins.auth.postgres import PostgresKeys
from tailrace.plugins.auth.ring import KeyRing
from tailrace.plugins.auth.settings import Config
from tailrace.plugins.auth.sqlite import NAME, SqliteKeys
from tailrace.proxy.control import Refused
from tailrace.proxy.ground import Places
from tailrace.proxy.plugin import AnyPlugin

TICK: Final = 0.1
FIRST_LOOK: Final = 5.0
"""How long a start waits for the stores, and"""
STOPPING: Final = 1.0
"""how long an end waits for their threads."""


class Keeper:
    """Keeps the table of keys and the file of key sets in shared memory."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._board = Board(places.shared, writable=True)
        self._ring = KeyRing(self._board)
        self._following: list[Following] = []
        self._sets = KeySets(self._board)
        self._config = Config()

    @classmethod
    @asynccontextmanager
    async def running(cls, config: Config, places: Places) -> AsyncIterator[Keeper]:
        """Keep, with a first look at every store before it begins."""
        keeper = await asyncio.to_thread(cls, places)
        confirming = asyncio.ensure_future(keeper._confirm())
        try:
            await keeper._begin(config)
            yield keeper
        finally:
            confirming.cancel()
            await keeper._end(keeper._following)
            await keeper._sets.follow(())

    async def _begin(self, config: Config) -> None:
        """Follow what a configuration names and the present one does not."""
        old = self._following
        new: list[Following] = []
        for store in self._stores(config):
            new.append(Following(store, self._ring))
            new[-1].start()
        await asyncio.to_thread(_first_looks, new)
        self._config, self._following = config, new
        await self._sets.follow(config.jwt)
        await self._confirm_once()
        await self._end(old)
        for each in old:
            await asyncio.to_thread(self._ring.forget, each.label)

    def _stores(self, config: Config) -> list[Store]:
        database: Store
        if config.database is not None:
            database = PostgresKeys(config.database.reveal())
        else:
            database = SqliteKeys(self._places.state / NAME)
        return [database] if config.keys is None else [FileKeys(config.keys), database]

    async def _end(self, following: Sequence[Following]) -> None:
        for each in following:
            each.stop()
        for each in following:
            await asyncio.to_thread(each.join, STOPPING)

    async def _confirm(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            await self._confirm_once()

    async def _confirm_once(self) -> None:
        """Say how fresh the table is; a file that is faulty by now does not make it older."""
        times: list[int] = [each.confirmed_ns for each in self._following if each.store.name != FileKeys.name]
        oldest = min(times, default=0)
        if oldest and all(each.confirmed_ns for each in self._following):
            if not self._ring.is_complete:
                await asyncio.to_thread(self._ring.complete)
            self._board.confirm(oldest, self._ring.keys)

    async def answer(self, seat: int, question: str, fields: dict[str, Any]) -> Any:
        """`refresh`: a token names a key that nobody knows."""
        if question != "refresh":
            raise Refused(f"nobody answers '{question}' here")
        return self._sets.refresh(fields["issuer"])

    def left(self, seat: int) -> None:
        """Processes leave nothing behind here."""

    async def follow(self, plugin: AnyPlugin) -> None:
        """Go by a changed configuration."""
        config: Config = plugin.config
        if (config.keys, config.database) != (self._config.keys, self._config.database):
            await self._begin(config)
        else:
            self._config = config
            await self._sets.follow(config.jwt)

    def unready(self) -> Sequence[str]:
        """Keys too old to go by."""
        reasons = []
        if self._board.age > self._config.stale_for:
            # What a database says of it is in the log: it may name hosts and users.
            reasons.append(f"auth: the keys could not be read for {_told(self._board.age)}")
        return [*reasons, *(f"auth: no keys of {name}" for name in self._sets.missing(time.time()))]


def _first_looks(following: Sequence[Following]) -> None:
    end = time.monotonic() + FIRST_LOOK
    for each in following:
        each.first.wait(max(0.0, end - time.monotonic()))


def _told(age: float) -> str:
    return "as long as this host runs" if age == float("inf") else f"{age:.0f} s"
