"""Tells every process what discovery has found, each time it is something else.

One that starts is told with its orders. A process that does not answer is told again, and keeps the news from no other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tailrace.proxy.control import Gone, Refused

if TYPE_CHECKING:
    from tailrace.proxy.crew import Crew, Member
    from tailrace.proxy.discovery.search import Search

AGAIN: Final = 0.25
PATIENCE: Final = 1.0
"""Seconds that one process that does not answer may keep a sidecar waiting for its lease."""


class Tidings:
    """The way from one search to all processes; `number` counts what was found."""

    def __init__(self, crew: Crew, search: Search) -> None:
        self.number = 1
        self._crew = crew
        self.search = search
        self._news = asyncio.Event()
        search.changed = self._changed

    def _changed(self) -> None:
        self.number += 1
        self._news.set()

    def plain(self) -> dict[str, Any]:
        """What a process is told."""
        return {"number": self.number, **self.search.found.plain()}

    async def follow(self) -> None:
        """Tell whatever changes, for ever."""
        while True:
            self._news.clear()
            await self.tell()
            behind = any(member.found != self.number for member in self._crew.serving)
            try:
                async with asyncio.timeout(AGAIN if behind else None):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def tell(self) -> None:
        """Tell those who do not know it yet."""
        plain = self.plain()
        behind = [member for member in self._crew.serving if member.found != plain["number"]]
        await asyncio.gather(*(_tell(member, plain) for member in behind))

    async def joined(self, member: Member) -> None:
        """Tell a process that was starting while something was found."""
        if member.found != self.number:
            await _tell(member, self.plain())


async def _tell(member: Member, plain: dict[str, Any]) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await member.channel.ask("found", found=plain)
    except (TimeoutError, Refused, Gone):
        return
    # It may have been told something newer meanwhile.
    member.found = max(member.found, plain["number"])
