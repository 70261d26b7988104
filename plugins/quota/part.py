"""What quota runs once on a host: the authority, asked by the processes, told of their ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tailrace.plugins.quota.authority import Authority, Counter, Exhausted, Granted, Short
from tailrace.plugins.quota.stocks import Full
from tailrace.plugins.quota.windows import Clock
from tailrace.proxy.control import Refused
from tailrace.proxy.ground import Places
from tailrace.proxy.plugin import AnyPlugin

log = logging.getLogger("tailrace")
_SWEEP: Final = 0.5

Told = list[float]
"""An answer on the wire: what it is, then its fields."""
GRANTED: Final = 0
EXHAUSTED: Final = 1
UNKNOWN: Final = 2


def told(answer: Granted | Exhausted | Short | None) -> Told:
    """An answer as it goes to a process."""
    if isinstance(answer, Granted):
        return [GRANTED, answer.at, answer.ends, answer.resets, answer.left]
    if isinstance(answer, Exhausted):
        return [EXHAUSTED, answer.ends, answer.resets, answer.left, answer.frees]
    return [UNKNOWN]


def heard(answer: Told) -> Granted | Exhausted | None:
    """The same as a process reads it; None where nobody knows."""
    if answer[0] == GRANTED:
        _, at, ends, resets, left = answer
        return Granted(int(at), ends, int(resets), int(left))
    if answer[0] == EXHAUSTED:
        _, ends, resets, left, frees = answer
        return Exhausted(ends, int(resets), int(left), bool(frees))
    return None


class Part:
    """The authority of this host, as `HostPart`."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder, Clock())

    async def answer(self, seat: int, question: str, fields: dict[str, Any]) -> Any:
        """`join`, `lease`, `close` or `leave`, from the process in a seat."""
        match question:
            case "join":
                self.authority.join(seat, fields["book"])
            case "leave":
                self.authority.leave(fields["book"])
            case "lease":
                return [self._lease(fields["book"], Counter(*want[0]), *want[1:]) for want in fields["wants"]]
            case "close":
                for at in fields["slots"]:
                    self.authority.close(fields["book"], at)
            case _:
                raise Refused(f"quota has no answer to '{question}'")
        return None

    def _lease(self, book: str, counter: Counter, need: int, least: int) -> Told:
        try:
            return told(self.authority.lease(book, counter, need, least))
        except Full:
            log.error("more limits are in use than this host has room for: the policy for an unknown state holds")
            return told(None)

    def left(self, seat: int) -> None:
        """What the process in a seat has not spent is free again."""
        self.authority.left(seat)

    async def follow(self, plugin: AnyPlugin) -> None:
        """Limits travel with each question."""

    def unready(self) -> Sequence[str]:
        """Limits never keep traffic away from a host."""
        return ()

    async def sweep(self) -> None:
        """Forget what is over, for as long as the host serves."""
        while True:
            await asyncio.sleep(_SWEEP)
            self.authority.sweep()


@asynccontextmanager
async def part(places: Places) -> AsyncIterator[Part]:
    """The part while the host serves."""
    here = Part(places.shared / "quota")
    sweeping = asyncio.ensure_future(here.sweep())
    try:
        yield here
    finally:
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping
        here.authority.close_books()
