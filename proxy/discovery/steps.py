"""Large changes of what discovery has found are taken up in steps, between which calls go on.

Newcomers come first: a pool that is replaced as a whole has workers all the while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from tailrace.proxy.discovery.endpoint import Endpoint, Found

MOST: Final = 100
"""Workers that come or go in one step."""
REST: Final = 4
"""How many times longer than a step whatever else there is may take until the next one."""


def nothing() -> None:
    """What is done where nobody wants anything done."""


class Steps:
    """The way of one process from what it knows to what has been found."""

    def __init__(self, take_up: Callable[[Found], None], found: Found) -> None:
        self._take_up = take_up
        self._now = self._aim = found
        self._then = nothing
        self._next: asyncio.TimerHandle | None = None

    def go(self, found: Found, then: Callable[[], None], *, at_once: bool) -> None:
        """Go there from now on: `at_once`, or as far as one step leads for a start; `then` is done after each step."""
        self._aim, self._then = found, then
        if at_once:
            self.close()
            self._now = found
            self._take_up(found)
            then()
        elif self._next is None:
            self._step()

    def _step(self) -> None:
        self._next = None
        began = time.monotonic()
        self._now = towards(self._now, self._aim)
        try:
            self._take_up(self._now)
            self._then()
        finally:
            if self._now != self._aim:
                rest = REST * (time.monotonic() - began)
                self._next = asyncio.get_running_loop().call_later(rest, self._step)

    def close(self) -> None:
        """Go no further."""
        if self._next is not None:
            self._next.cancel()
            self._next = None


def towards(now: Found, aim: Found, most: int = MOST) -> Found:
    """What is nearer to `aim` than `now`, by so many workers that come or go."""
    members: dict[str, tuple[Endpoint, ...]] = {}
    for key, wanted in aim.members.items():
        known = now.members.get(key, ())
        if known == wanted:
            members[key] = wanted
            continue
        before, after = set(known), set(wanted)
        coming = [each for each in wanted if each not in before]
        going = [each for each in known if each not in after]
        if len(coming) + len(going) <= most:
            members[key] = wanted
            most -= len(coming) + len(going)
            continue
        coming = coming[:most]
        most -= len(coming)
        gone = set(going[:most])
        most -= len(gone)
        members[key] = (*(each for each in known if each not in gone), *coming)
    return Found(members, aim.same)
