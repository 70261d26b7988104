"""Tells every process why this host should get no new traffic, so that the `/readyz` of the data port says it too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tailrace.proxy.control import Gone, Refused

if TYPE_CHECKING:
    from tailrace.proxy.crew import Crew, Member

LOOK: Final = 0.25
PATIENCE: Final = 0.5
"""How long one process that does not answer may keep news from the others."""


class Bulletin:
    """What `unready` says, at every serving process; a process that starts is told with its orders."""

    def __init__(self, crew: Crew, unready: Callable[[], Sequence[str]]) -> None:
        self._crew = crew
        self._unready = unready

    async def follow(self) -> None:
        """Tell whatever changes, for ever."""
        while True:
            await self.tell()
            await asyncio.sleep(LOOK)

    async def tell(self) -> None:
        """Tell those who do not know it yet."""
        reasons = tuple(self._unready())
        behind = [member for member in self._crew.serving if member.host_unready != reasons]
        await asyncio.gather(*(_tell(member, reasons) for member in behind))


async def _tell(member: Member, reasons: tuple[str, ...]) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await member.channel.ask("host_unready", reasons=reasons)
    except (TimeoutError, Refused, Gone):
        return  # told again at the next look, if it still serves
    member.host_unready = reasons
