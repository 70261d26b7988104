"""What quota runs once on a host: the authority, asked by the processes, told of their ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from tailrace.plugins.quota.authority import Authority, Counter, Exhausted, Granted, Short
from tailrace.plugins.quota.stocks import Full
from tailrace.plugins.quota.store import RENEW, Away, Store, StoreSettings, connected
from tailrace.plugins.quota.windows import Clock
from tailrace.proxy.control import Refused
from tailrace.proxy.ground import Places
from tailrace.proxy.plugin import AnyPlugin

log = logging.getLogger("tailrace")
_SWEEP: Final = 0.5
_IDLE: Final = 2.0

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
    """The authority of this host, as `HostPart`; a store, where there is one, divides the limits between hosts."""

    def __init__(self, authority: Authority, store: Store | None) -> None:
        self.authority = authority
        self._store = store
        self._renewed = 0.0
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    async def answer(self, seat: int, question: str, fields: dict[str, Any]) -> Any:
        """`join`, `lease`, `close` or `leave`, from the process in a seat."""
        match question:
            case "join":
                self.authority.join(seat, fields["book"])
            case "leave":
                self.authority.leave(fields["book"])
            case "lease":
                wants = (self._lease(fields["book"], Counter(*want[0]), *want[1:]) for want in fields["wants"])
                return [told(answer) for answer in await asyncio.gather(*wants)]
            case "close":
                for at in fields["slots"]:
                    self.authority.close(fields["book"], at)
            case _:
                raise Refused(f"quota has no answer to '{question}'")
        return None

    async def _lease(self, book: str, counter: Counter, need: int, least: int) -> Granted | Exhausted | None:
        """A lease, with more from the store where this host has not enough; None where nobody can tell."""
        try:
            answer = self.authority.lease(book, counter, need, least)
            if not isinstance(answer, Short):
                return answer
            return await self._from_store(book, counter, need, least)
        except Full:
            log.error("more limits are in use than this host has room for: the policy for an unknown state holds")
            return None

    async def _from_store(self, book: str, counter: Counter, need: int, least: int) -> Granted | Exhausted | None:
        assert self._store is not None
        async with self._turn(counter):
            answer = self.authority.lease(book, counter, need, least)
            if not isinstance(answer, Short):
                return answer  # somebody else's question has brought enough
            window, held = self.authority.held(counter)
            try:
                given = await self._store.more(counter, window, held, answer.wanted, answer.least)
            except Away:
                return None
            if given.amount:
                self.authority.hold(counter, window, given.amount)
                answer = self.authority.lease(book, counter, need, least)
                return None if isinstance(answer, Short) else answer
        ends = self.authority.monotonic_of(window)
        return Exhausted(ends, window.ends, 0 if given.closed else given.left, frees=not given.closed)

    def left(self, seat: int) -> None:
        """What the process in a seat has not spent is free again."""
        self.authority.left(seat)

    async def follow(self, plugin: AnyPlugin) -> None:
        """Limits travel with each question."""

    def unready(self) -> Sequence[str]:
        """Limits never keep traffic away from a host."""
        return ()

    async def sweep(self) -> None:
        """Forget what is over and return what lies idle, for as long as the host serves."""
        while True:
            await asyncio.sleep(_SWEEP)
            self.authority.sweep()
            if self._store is not None and self._store.up:
                await self._tidy(self._store)

    async def _tidy(self, store: Store) -> None:
        # Gone here before it is free there.
        for counter in self.authority.let_go(_IDLE):
            await self._tell(store, counter)
        now = asyncio.get_running_loop().time()
        if now - self._renewed > RENEW:
            self._renewed = now
            for counter in self.authority.running():
                await self._tell(store, counter)

    async def _tell(self, store: Store, counter: Counter) -> None:
        with suppress(Away):
            async with self._turn(counter):
                window, held = self.authority.held(counter)
                await store.tell(counter, window, held)

    @asynccontextmanager
    async def _turn(self, counter: Counter) -> AsyncIterator[None]:
        """One question to the store at a time for each counter."""
        lock, waiting = self._turns.get(counter.name, (asyncio.Lock(), 0))
        self._turns[counter.name] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns.pop(counter.name)
            if waiting > 1:
                self._turns[counter.name] = lock, waiting - 1


@asynccontextmanager
async def part(places: Places, settings: StoreSettings | None) -> AsyncIterator[Part]:
    """The part while the host serves."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        authority = Authority(places.shared / "quota", clock, divided=settings is not None)
        stack.callback(authority.close_books)
        store = None
        if settings is not None:
            store = await stack.enter_async_context(connected(settings, places.state, authority.memory, clock))
        here = Part(authority, store)
        sweeping = asyncio.ensure_future(here.sweep())
        try:
            yield here
        finally:
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await sweeping
