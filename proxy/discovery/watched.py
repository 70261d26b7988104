"""A file that lists workers, followed: what it lists counts, and its last good list where it is faulty or gone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from tailrace.proxy.discovery.beside import Beside
from tailrace.proxy.discovery.endpoint import Endpoint
from tailrace.proxy.discovery.listing import UNREAD, ListingError, read_listing
from tailrace.proxy.watchfiles import Stamp, stamp

log: Final = logging.getLogger("tailrace")
LOOK: Final = 0.5
SETTLED: Final = 0.1
"""Seconds after which a file that was found faulty is read again: whoever writes it may not be done yet."""


class WatchedFile:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.found: tuple[Endpoint, ...] = ()
        self.trouble = ""
        self._path = path
        self._seen: Stamp | None = None
        self._read = False
        self._doubtful = False
        self._news: Beside[tuple[Endpoint, ...] | None] = Beside(self._read_news)

    async def look(self) -> float:
        """Read it where it has changed."""
        try:
            found = await self._news.ask()
        except TimeoutError:
            self._doubtful = True  # it is no half-written file that takes so long
            return self._keep(UNREAD)
        except ListingError as error:
            return self._keep(str(error))
        if found is None:
            return LOOK
        if self.trouble:
            log.info("the workers of %s can be read again", self._path)
        if self.found and not found:
            log.warning("%s lists no worker any more", self._path)
        self.found, self.trouble, self._doubtful = found, "", False
        return LOOK

    def _read_news(self) -> tuple[Endpoint, ...] | None:
        """What it lists, None where it looks as it did; runs beside the loop."""
        now = stamp(self._path)
        if self._read and now == self._seen and not self._doubtful and self.trouble != UNREAD:
            return None
        self._seen, self._read = now, True
        return read_listing(self._path)

    def _keep(self, why: str) -> float:
        """Say why, once, unless it is only being written."""
        self._doubtful = not self._doubtful and why != self.trouble
        if self._doubtful:
            return SETTLED
        if why != self.trouble:
            self.trouble = why
            log.error("the workers of %s cannot be read, the last known ones stay: %s", self._path, why)
        return LOOK
