"""What quota runs once on a host: the authority, asked by the processes, told of their ends."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, Protocol

from tailrace.plugins.quota.authority import Authority
from tailrace.plugins.quota.spend import Down, Spend
from tailrace.plugins.quota.stocks import Full
from tailrace.plugins.quota.store import GATHERED, RENEW, Away, Given, Store, StoreSettings, Untold, connected
from tailrace.plugins.quota.terms import Counter, Exhausted, Granted, Short, told
from tailrace.plugins.quota.windows import AT_ONCE, Clock, Window
from tailrace.proxy.config import Secret
from tailrace.proxy.control import Refused
from tailrace.proxy.ground import Places
from tailrace.proxy.plugin import AnyPlugin

log = logging.getLogger("tailrace")
_SWEEP: Final = 0.5
_IDLE: Final = 2.0
_LATELY: Final = 2.0


class _Config(Protocol):
    """What of the plugin's configuration matters here."""

    @property
    def store(self) -> StoreSettings | None:
        """The store that divides limits between hosts."""

    @property
    def ledger(self) -> Secret | None:
        """The ledger's sink; None for the one beside its log."""


class Part:
    """The authority of this host, as `HostPart`; a store, where there is one, divides the limits between hosts."""

    def __init__(self, authority: Authority, store: Store | None, spend: Spend, config: _Config | None = None) -> None:
        self.authority = authority
        self._config = config
        self._store = store
        self._spend = spend
        self._renewed = 0.0
        self._epoch: str | None = None
        self._gathered = math.inf
        self._refused: dict[str, tuple[Exhausted, float]] = {}
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    async def answer(self, seat: int, question: str, fields: dict[str, Any]) -> Any:
        """`join`, `lease`, `close` or `leave`, from the process in a seat."""
        match question:
            case "join":
                self.authority.join(seat, fields["book"])
            case "leave":
                self.authority.leave(fields["book"])
            case "lease":
                wants = (self._lease(fields["book"], _counter(want[0]), *want[1:]) for want in fields["wants"])
                return [told(answer) for answer in await asyncio.gather(*wants)]
            case "close":
                for at in fields["slots"]:
                    self.authority.close(fields["book"], at)
            case _:
                raise Refused(f"quota has no answer to '{question}'")
        return None

    async def _lease(self, book: str, counter: Counter, need: int, least: int, at: int) -> Granted | Exhausted | None:
        """A lease, with more from the store where this host has not enough; None where nobody can tell."""
        window = self.authority.window(counter, at)
        try:
            if self._store is None and self.authority.unseeded(counter, window):
                await self._remember(counter, window)
            answer = self.authority.lease(book, counter, need, least, window)
            if not isinstance(answer, Short):
                return answer
            return await self._from_store(book, counter, need, least, window)
        except Full:
            log.error("more limits are in use than this host has room for: the policy for an unknown state holds")
        except Away:
            pass
        except Down as error:
            log.error("what was spent before cannot be read from the ledger: %s", error)
        return None

    async def _remember(self, counter: Counter, window: Window) -> None:
        """Count what the ledger knows from before the memory of this host began."""
        async with self._turn(counter):
            if self.authority.unseeded(counter, window):
                spent = await self._spend.of_own(counter, window, self.authority.born_ns)
                self.authority.seed(counter, window, spent)

    async def _from_store(
        self, book: str, counter: Counter, need: int, least: int, window: Window
    ) -> Granted | Exhausted | None:
        store = self._store
        assert store is not None
        async with self._turn(counter):
            answer = self.authority.lease(book, counter, need, least, window)
            if not isinstance(answer, Short):
                return answer  # somebody else's question has brought enough
            held = self.authority.held(counter, window)
            try:
                given = await self._more(store, counter, window, held, answer)
            except Away:
                return self._lately(counter, window, answer.least)
            if given.amount:
                self._refused.pop(counter.name, None)
                self.authority.hold(counter, window, given.amount)
                answer = self.authority.lease(book, counter, need, least, window)
                return None if isinstance(answer, Short) else answer
        ends = self.authority.monotonic_of(window)
        refusal = Exhausted(ends, window.ends, 0 if given.closed else given.left, frees=not given.closed)
        if counter.per != AT_ONCE:
            self._refused[counter.name] = refusal, asyncio.get_running_loop().time()
        return refusal

    async def _more(self, store: Store, counter: Counter, window: Window, held: int, short: Short) -> Given:
        try:
            return await store.more(counter, window, held, short.wanted, short.least)
        except Untold:
            await self._seed(store, counter, window)
            return await store.more(counter, window, held, short.wanted, short.least)

    def _lately(self, counter: Counter, window: Window, least: int) -> Exhausted | None:
        """What the store said of a counter a moment ago, where it had too little: not much of a window comes back."""
        refusal, said_at = self._refused.get(counter.name, (None, 0.0))
        if refusal is None or refusal.resets != window.ends or refusal.left >= least:
            return None
        return refusal if asyncio.get_running_loop().time() - said_at < _LATELY else None

    async def _seed(self, store: Store, counter: Counter, window: Window) -> None:
        """Tell a store without memory what the ledgers know: of this host what its own memory does not have."""
        spent = await self._spend.of_all(counter, window)
        spent[store.ledger] = await self._spend.of_own(counter, window, self.authority.born_ns)
        await store.seed(counter, window, spent)

    def left(self, seat: int) -> None:
        """What the process in a seat has not spent is free again."""
        self.authority.left(seat)

    async def follow(self, plugin: AnyPlugin) -> None:
        """Limits travel with each question; the store stays as it is, as hosts must not differ in it."""
        config = plugin.config
        old, self._config = self._config, config
        if old is not None and (config.store, config.ledger) != (old.store, old.ledger):
            log.warning("quota: another `store` or `ledger` is taken up by the next start, the present one stays")

    def unready(self) -> Sequence[str]:
        """Limits never keep traffic away from a host."""
        return ()

    def metrics(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Whether limits are shared at the moment, and how often the store was found to have forgotten them."""
        if self._store is not None:
            yield "store_up", {}, float(self._store.up)
            yield "store_lost_total", {}, float(self._store.epochs)

    async def sweep(self) -> None:
        """Forget what is over and return what lies idle, for as long as the host serves."""
        while True:
            await asyncio.sleep(_SWEEP)
            self.authority.sweep()
            now = asyncio.get_running_loop().time()
            for name in [name for name, (_, said_at) in self._refused.items() if now - said_at > _LATELY]:
                del self._refused[name]
            if self._store is not None and self._store.up:
                await self._tidy(self._store)

    async def _tidy(self, store: Store) -> None:
        now = asyncio.get_running_loop().time()
        store.ledger = store.ledger or self._spend.own
        if store.epoch != self._epoch:
            # Before a store that has forgotten gives anything, it hears what every host holds.
            self._epoch, self._gathered = store.epoch, now + GATHERED + 1
            for counter, window in self.authority.asked():
                await self._tell(store, counter, window)
        elif now > self._gathered:
            # And then from each what is known of it from before: until that is said, it counts twice.
            self._gathered = math.inf
            for counter, window in self.authority.asked():
                if counter.remembered:
                    await self._tell(store, counter, window)
        # Gone here before it is free there.
        for counter, window in self.authority.let_go(_IDLE):
            await self._tell(store, counter, window)
        if now - self._renewed > RENEW:
            self._renewed = now
            for counter, window in self.authority.asked():
                if counter.per == AT_ONCE:
                    await self._tell(store, counter, window)

    async def _tell(self, store: Store, counter: Counter, window: Window) -> None:
        with suppress(Away, Down):
            async with self._turn(counter):
                try:
                    await store.tell(counter, window, self.authority.held(counter, window))
                except Untold:
                    await self._seed(store, counter, window)

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


def _counter(fields: Sequence[Any]) -> Counter:
    """A counter as it comes over the wire."""
    name, limit, per, zone, what, whom = fields
    return Counter(name, limit, per, zone, what, tuple(whom))


@asynccontextmanager
async def part(places: Places, config: _Config) -> AsyncIterator[Part]:
    """The part while the host serves."""
    settings, ledger = config.store, None if config.ledger is None else config.ledger.reveal()
    clock = Clock()
    async with AsyncExitStack() as stack:
        authority = Authority(places.shared / "quota", clock, divided=settings is not None)
        stack.callback(authority.close_books)
        store = None
        if settings is not None:
            store = await stack.enter_async_context(connected(settings, places.state, authority.memory, clock))
        spend = Spend(ledger, places.state)
        if store is not None:
            store.ledger = spend.own
        here = Part(authority, store, spend, config)
        sweeping = asyncio.ensure_future(here.sweep())
        try:
            yield here
        finally:
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await sweeping
