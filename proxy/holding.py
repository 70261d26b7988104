"""What plugins hold while a chain serves: the `running()` of each is entered and left by a task of its own.

Task groups, timeouts and anyio's scopes belong to the task that enters them. Entered by the task that loads a
configuration and left by another, a group whose child fails would cancel whatever the loader does by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tailrace.proxy.blame import own_failure
from tailrace.proxy.pipeline import ChainError

if TYPE_CHECKING:
    from tailrace.proxy.pipeline import Link

log: Final = logging.getLogger("tailrace")
CLOSE_LIMIT: Final = 5.0
"""How long a plugin may take to close, and then again once it is cancelled."""


class Holding:
    """One plugin between the two halves of its `running()`; `failed` counts a plugin that breaks meanwhile."""

    def __init__(self, link: Link, failed: Callable[[str], None]) -> None:
        self._link = link
        self._failed = failed
        self._closing = False
        self._over = asyncio.Event()
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._hold())

    async def begun(self) -> None:
        """Wait until the plugin is ready; raises what it failed with."""
        await self._begun

    async def _hold(self) -> None:
        try:
            async with self._link.plugin.running():
                if not self._begun.done():
                    self._begun.set_result(None)
                    await self._over.wait()
        except BaseException as error:
            self._ended(error)
        else:
            self._ended(None)

    def _ended(self, error: BaseException | None) -> None:
        name = self._link.name
        if not self._begun.done():
            self._begun.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        elif not self._closing:
            log.error("plugin '%s' ended while it was in use: what it held is gone", name, exc_info=error)
            self._failed(name)
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("plugin '%s' failed while it was closed", name, exc_info=error)

    async def close(self) -> None:
        """Leave `running()`; whatever the plugin does, this ends in a bounded time and raises nothing."""
        self._closing = True
        if self._begun.done() and not self._begun.cancelled():
            self._over.set()
            await asyncio.wait({self._task}, timeout=CLOSE_LIMIT)
            if self._task.done():
                return
            log.error("plugin '%s' is not closed after %g s and is cancelled", self._link.name, CLOSE_LIMIT)
        self._begun.cancel()
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=CLOSE_LIMIT)
        if not self._task.done():
            log.error("plugin '%s' goes on although it was cancelled, and is left to itself", self._link.name)


class Holdings:
    """What all plugins of a chain hold, in the order in which they began."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._all: list[Holding] = []

    async def begin(self, links: Iterable[Link]) -> None:
        """Start plugins one after the other; raises ChainError after those that have begun are closed again."""
        try:
            for link in links:
                holding = Holding(link, self._failed)
                self._all.append(holding)
                try:
                    await holding.begun()
                except Exception as error:
                    raise ChainError(f"plugin '{link.name}' could not start: {own_failure(error)}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all, the last first."""
        while self._all:
            await self._all.pop().close()
