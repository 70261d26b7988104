"""The price list as a process has it: read again when the file changes, kept as it was where that is faulty."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from tailrace.proxy.config import ConfigError
from tailrace.proxy.prices import Prices, load
from tailrace.proxy.watchfiles import stamp

log = logging.getLogger("tailrace")
LOOK: Final = 0.5
"""Seconds between two looks at the file."""


class PriceList:
    """`prices` is what holds now."""

    def __init__(self, path: Path, *, speaks: bool) -> None:
        """Read the file; raises ConfigError. One process of a host `speaks` of what it finds later."""
        self._path = path
        self._speaks = speaks
        self._seen = stamp(path)
        self.prices: Prices = load(path)
        self.faulty = False
        """Whether the file's present state is not what holds."""

    async def follow(self) -> None:
        """Look, for as long as this runs."""
        while True:
            await asyncio.sleep(LOOK)
            now = stamp(self._path)
            if now != self._seen:
                self._seen = now
                await self._take()

    async def _take(self) -> None:
        try:
            self.prices = await asyncio.to_thread(load, self._path)
        except ConfigError as error:
            self.faulty = True
            if self._speaks:
                log.error("the new prices are not taken, the last good ones stay: %s", error.flaws[0])
        else:
            self.faulty = False
            if self._speaks:
                log.info("new prices hold: version %s", self.prices.version)
