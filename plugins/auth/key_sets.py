"""The host part's fetching of issuers' public keys: in the background, one at a time each, never for a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import orjson
from tailrace.plugins.auth.board import Board
from tailrace.plugins.auth.jwk import NoSet, public_keys
from tailrace.plugins.auth.settings import Issuer
from tailrace.proxy.config.secret import without_userinfo
from tailrace.proxy.watchfiles import Stamp, stamp

log = logging.getLogger("tailrace")
LARGEST: Final = 1 << 18
TIMEOUT: Final = 10.0
AGAIN: Final = 2.0
"""Seconds until the next try where an issuer has given no keys yet, or its last answer was none."""
FILE_LOOK: Final = 1.0


class KeySet:
    """One issuer's keys: the last good ones, however its server fares."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.keys: list[dict[str, str]] = []
        self.fetched = 0.0
        """When they were, in seconds of Unix time; 0 for never."""
        self.fetches = 0
        self.failed = False
        self.task: asyncio.Task[None] | None = None
        self._tried = float("-inf")
        self._wanted = asyncio.Event()
        self._seen: Stamp | None = None

    def want(self) -> bool:
        """Fetch soon; whether that may be, which it may once a cooldown."""
        if time.monotonic() - self._tried < self.issuer.cooldown or self._wanted.is_set():
            return False
        self._wanted.set()
        return True

    async def fetch(self) -> bool:
        """Fetch once; whether good keys came of it."""
        self.fetches += 1
        origin = without_userinfo(self.issuer.jwks or str(self.issuer.jwks_file))
        try:
            content = await self._content()
            self.keys = public_keys(content, origin)
            self.fetched = time.time()
        except (OSError, TimeoutError, aiohttp.ClientError, NoSet) as error:
            if not self.failed:
                told = without_userinfo(str(error)) or type(error).__name__
                log.error("the keys of %s could not be had from %s: %s", self.issuer.issuer, origin, told)
            self.failed = True
        else:
            if self.failed:
                log.info("the keys of %s can be had again", self.issuer.issuer)
            self.failed = False
        finally:
            self._tried = time.monotonic()
            self._wanted.clear()
        return not self.failed

    async def _content(self) -> bytes:
        if self.issuer.jwks_file is not None:
            self._seen = stamp(self.issuer.jwks_file)
            return await asyncio.to_thread(self.issuer.jwks_file.read_bytes)
        assert self.issuer.jwks is not None
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
            headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
            async with session.get(self.issuer.jwks, headers=headers, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise NoSet(f"it answered {answer.status}")
                content = await answer.content.read(LARGEST + 1)
                while len(content) <= LARGEST and (more := await answer.content.read(LARGEST)):
                    content += more
        if len(content) > LARGEST:
            raise NoSet(f"it is larger than {LARGEST} bytes")
        return content

    async def rest(self) -> None:
        """Until it is time to fetch again, or somebody wants it, or the file has changed."""
        end = time.monotonic() + (AGAIN if self.failed else self.issuer.refresh)
        file = self.issuer.jwks_file
        while (left := end - time.monotonic()) > 0 and (file is None or stamp(file) == self._seen):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left if file is None else min(left, FILE_LOOK)):
                    await self._wanted.wait()
                    return

    def plain(self) -> dict[str, Any]:
        """What processes are told."""
        return {"issuer": self.issuer.issuer, "keys": self.keys, "fetched": self.fetched}


class KeySets:
    """The sets of all issuers, shown to all processes of the host."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._sets: dict[str, KeySet] = {}

    async def follow(self, issuers: Sequence[Issuer]) -> None:
        """Fetch for these from now on; what is known of one that stays the same stays."""
        wanted = {issuer.issuer: issuer for issuer in issuers if issuer.secret is None}
        for name, known in list(self._sets.items()):
            if wanted.get(name) != known.issuer:
                del self._sets[name]
                await _stop(known)
        for name, issuer in wanted.items():
            if name not in self._sets:
                self._sets[name] = KeySet(issuer)
                self._sets[name].task = asyncio.ensure_future(self._keep(self._sets[name]))
        if issuers:
            self._publish()

    def refresh(self, issuer: str) -> bool:
        """Somebody has met a key that is not in the set; whether that leads to a fetch."""
        known = self._sets.get(issuer)
        return known is not None and known.want()

    def missing(self, now: float) -> list[str]:
        """Issuers without keys that are fresh enough."""
        return [name for name, known in self._sets.items() if now - known.fetched > known.issuer.max_age]

    async def _keep(self, known: KeySet) -> None:
        while True:
            if await known.fetch():
                self._publish()
            await known.rest()

    def _publish(self) -> None:
        number = self._board.sets + 1
        path = self._board.sets_path(number)
        path.write_bytes(orjson.dumps([known.plain() for known in self._sets.values()]))
        self._board.show_sets(number)


async def _stop(known: KeySet) -> None:
    if known.task is not None:
        known.task.cancel()
        await asyncio.wait([known.task])
