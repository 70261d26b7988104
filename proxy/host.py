"""What plugins run once on a host, beside the processes that serve: the keeper of keys, of shares, of the ledger.

It lives in the supervisor; a gateway without one (in tests, or embedded) runs it in its own process. Nothing here is on
the path of a request but the one question of a plugin that says so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.proxy.control import Refused
from tailrace.proxy.ground import Places, claim
from tailrace.proxy.leftovers import move_in, sweep
from tailrace.proxy.metrics.host_values import HostValues
from tailrace.proxy.pipeline import Link, hosted_links

if TYPE_CHECKING:
    from tailrace.proxy.plugin import AnyPlugin

log = logging.getLogger("tailrace")


class HostPart(Protocol):
    """A plugin's part that runs once on a host, from `Plugin.host_part`.

    It may have a method `metrics()` as plugins have, under names that its plugin does not use: it gives plain numbers,
    from its beginning until after its end.
    """

    async def answer(self, seat: int, question: str, fields: dict[str, Any]) -> Any:
        """Answer the process in a seat; raises Refused."""

    def left(self, seat: int) -> None:
        """The process in a seat is gone, however it ended; nothing of it runs any more."""

    async def follow(self, plugin: AnyPlugin) -> None:
        """Go by a changed configuration from now on; raises nothing that the old one would not have survived."""

    def unready(self) -> Sequence[str]:
        """Why this host should get no new traffic, in words for anybody: `/readyz` shows them on the data port too."""


class Host:
    """The parts of all plugins of the present chain, by the plugins' names."""

    def __init__(self, places: Places, values: HostValues) -> None:
        """`places` are theirs for its whole life; `values` is where their metrics go."""
        self.places = places
        self._values = values
        self._claims: list[int] = []
        self._parts: dict[str, tuple[AnyPlugin, HostPart, AsyncExitStack]] = {}
        self._staged: dict[str, tuple[AnyPlugin, HostPart, AsyncExitStack]] = {}
        self._links: list[Link] = []
        self._silent: set[str] = set()

    async def prepare(self, links: Sequence[Link]) -> None:
        """Start what a chain needs and the present one has not; on any error nothing has changed."""
        hosted = hosted_links(links)
        await self.discard()
        if not self._claims and any(link.plugin.keeps_files for link in hosted):
            self._claims = self._move_in()
        try:
            for link in hosted:
                if link.name not in self._parts:
                    await self._begin(link)
        except BaseException:
            await self.discard()
            raise
        self._links = hosted

    def _move_in(self) -> list[int]:
        claimed = claim(self.places)
        try:
            # Not before: whoever had the claim until now may have taken the shared folder along.
            shared = move_in(self.places)
        except BaseException:
            os.close(claimed)
            raise
        sweep(self.places.shared.parent)
        return [shared, claimed]

    async def _begin(self, link: Link) -> None:
        stack = AsyncExitStack()
        part = await stack.enter_async_context(link.plugin.host_part(self.places))
        self._staged[link.name] = link.plugin, part, stack

    async def commit(self) -> None:
        """The processes follow the prepared chain: so do the parts, and those that it has no use for end."""
        wanted = {link.name: link.plugin for link in self._links}
        for name in [name for name in self._parts if name not in wanted]:
            await self._end(name, self._parts.pop(name))
        for name, (old, part, stack) in list(self._parts.items()):
            plugin = wanted[name]
            if plugin.config != old.config:
                try:
                    await part.follow(plugin)
                except Exception:
                    log.exception("plugin '%s' goes on by its old configuration on this host", name)
            self._parts[name] = plugin, part, stack
        for name, entry in self._staged.items():
            self._parts[name] = entry
            self._values.add(name, entry[1])
        self._staged = {}

    async def discard(self) -> None:
        """The prepared chain is not used."""
        while self._staged:
            await self._end(*self._staged.popitem())

    async def answer(self, seat: int, name: str, question: str, fields: dict[str, Any]) -> Any:
        """Answer a plugin in the process of a seat; raises Refused."""
        found = self._parts.get(name) or self._staged.get(name)
        if found is None:
            raise Refused(f"plugin '{name}' has no part that runs on this host")
        try:
            return await found[1].answer(seat, question, fields)
        except Refused:
            raise
        except Exception as error:
            log.exception("the part of plugin '%s' on this host failed at '%s'", name, question)
            raise Refused(f"{type(error).__name__}: {error}") from error

    def left(self, seat: int) -> None:
        """The process in a seat is gone."""
        for name, (_, part, _) in (self._parts | self._staged).items():
            try:
                part.left(seat)
            except Exception:
                log.exception("the part of plugin '%s' on this host failed when process %d had ended", name, seat)

    def unready(self) -> list[str]:
        """Why this host should get no new traffic."""
        return [reason for name, (_, part, _) in self._parts.items() for reason in self._unready(name, part)]

    def _unready(self, name: str, part: HostPart) -> Sequence[str]:
        try:
            return part.unready()
        except Exception:
            if name not in self._silent:
                self._silent.add(name)
                log.exception("the part of plugin '%s' on this host failed to say whether it is ready", name)
            return [f"{name}: it cannot be told whether it is ready"]

    async def close(self) -> None:
        """End all parts, the last first, and let go of the state folder and of an empty shared one."""
        await self.discard()
        while self._parts:
            await self._end(*self._parts.popitem())
        if self._claims:
            self.places.leave()
        while self._claims:
            os.close(self._claims.pop(0))

    async def _end(self, name: str, entry: tuple[AnyPlugin, HostPart, AsyncExitStack]) -> None:
        _, _, stack = entry
        self._values.collect()
        try:
            await stack.aclose()
        except Exception:
            log.exception("the part of plugin '%s' on this host failed while it was closed", name)
        self._values.remove(name)
