"""Limits that several hosts share: Valkey (or Redis) divides them, one script for each question.

For each counter and window a hash holds what every host has been given; their sum is what is gone. A host sends along
what it holds, so that a store which lost its last writes learns them again. A store that lost everything has another
epoch, which its hosts notice by their next question: windows that began before that epoch are closed, because nobody
knows what was spent in them, and the next ones are open. Budgets that a ledger has the sums of are closed only until
every host has said what it holds, and what the ledger knows of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from tailrace.plugins.quota.scripts import BEGIN, CLOSED, GIVE, OTHER_EPOCH, SEED, UNTOLD
from tailrace.plugins.quota.waiting import within
from tailrace.plugins.quota.windows import AT_ONCE, FOREVER, Clock, Window
from tailrace.proxy.config import AtLeast, AtMost, Secret, setting

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from tailrace.plugins.quota.terms import Counter

log = logging.getLogger("tailrace")
LARGEST: Final = 2**53
"""Scripts count in doubles."""
_FINE: Final = 1000
"""Nano-units of money in one unit of the store: so no budget is too large for a double."""
_PARTS: Final = 2
_KEPT: Final = 120
_RUNNING_KEPT: Final = 30
RENEW: Final = 10.0
GATHERED: Final = 5
"""Seconds in which hosts that are alive say to a store without memory what they hold."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_LOOK: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The store that divides limits between hosts."""

    url: Secret = setting(help="redis://[:PASSWORD@]HOST:PORT[/DB], rediss://…, or unix:///PATH")
    prefix: str = setting(default="tailrace", help="the beginning of its keys; one for each set of gateways")
    wait_ms: Annotated[float, AtLeast(0.5), AtMost(1000)] = setting(
        default=10.0, help="how long a call may wait for it", why="only where its host has nothing left of a limit"
    )


class Away(Exception):  # noqa: N818 - an event of every outage
    """The store cannot be asked now, or did not answer in time."""


class Untold(Away):
    """The store has lost its memory and waits for what this host's ledger knows of a counter."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the store gives this host of a counter, and what is left for everybody; nothing `until` a window ends."""

    amount: int
    left: int
    closed: bool = False


class Script:
    """A script by its digest, in full where the store does not know it: SCRIPT LOAD is forbidden in some places."""

    def __init__(self, client: Redis, text: str) -> None:
        self._client = client
        self._text = text
        self._digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run it."""
        from redis.exceptions import NoScriptError

        try:
            return await self._client.evalsha(self._digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self._client.eval(self._text, len(keys), *keys, *args)


class Store:
    """The connection to the store, kept by `run`; `known` is the epoch that this host last saw, over restarts."""

    def __init__(self, client: Redis, prefix: str, host: str, memory: Path, clock: Clock, wait: float) -> None:
        self._client = client
        self._prefix = prefix
        self._host = host
        self._memory = memory
        self._clock = clock
        self._wait = wait
        self._give = Script(client, GIVE)
        self._begin = Script(client, BEGIN)
        self._seed = Script(client, SEED)
        self.epoch: str | None = None
        self.up = False
        self.epochs = 0
        """How often the store was found to have lost its memory."""
        self.ledger = ""
        """The name of this host's ledger, where budgets can be told by ledgers."""

    @property
    def _keys(self) -> tuple[str, str]:
        return f"{self._prefix}:epoch", f"{self._prefix}:since"

    async def run(self) -> None:
        """Keep the store's epoch and time known, for as long as the host serves."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._meet()
                pause = _FIRST_PAUSE
                await asyncio.sleep(_LOOK)
            except Exception as error:
                self._lose(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _meet(self) -> None:
        """Learn the epoch; a host that has known another one closes the windows that began before it."""
        known = self._recall()
        fresh = secrets.token_hex(8)
        # A host that remembers an epoch knows that this store is not new, only empty.
        since = str(self._clock.now()) if known is not None else "0"
        async with asyncio.timeout(_LOOK):
            epoch, began, moment = await self._begin(self._keys, [fresh, since])
        epoch = epoch.decode()
        self._clock.agree(int(moment[0]) + int(moment[1]) / 1e6)
        if known is not None and epoch != known and float(began) == 0:
            await self._client.set(self._keys[1], self._clock.now())
        if epoch != known:
            if known is not None:
                self.epochs += 1
                log.error("the store of limits has lost its memory: windows that are running give nothing more")
            self._memory.write_text(epoch)
        self.epoch = epoch
        if not self.up:
            self.up = True
            log.info("the store of limits answers")

    def _recall(self) -> str | None:
        with contextlib.suppress(OSError):
            return self._memory.read_text().strip() or None
        return None

    def _lose(self, error: BaseException) -> None:
        if self.up or self.epoch is None:
            log.error("the store of limits does not answer, leases are used up meanwhile: %r", error)
        self.up = False
        self.epoch = self.epoch or ""

    async def more(self, counter: Counter, window: Window, held: int, need: int, least: int) -> Given:
        """A larger part of a limit for this host, which holds so much of it; raises Away."""
        return await self._asked(counter, window, held, need, least, _PARTS, self._wait)

    async def tell(self, counter: Counter, window: Window, held: int) -> None:
        """Say how much this host holds, no more than before: to keep it, or to give some back; raises Away."""
        await self._asked(counter, window, held, 0, 0, LARGEST, _LOOK)

    async def seed(self, counter: Counter, window: Window, spent: Mapping[str, int]) -> None:
        """Say what ledgers know of a counter, each by its name; raises Away."""
        told: list[Any] = [self.epoch, self.ledger, _until(window), _KEPT]
        for ledger, amount in spent.items():
            told += [ledger, -(-amount // _unit(counter))]
        try:
            async with asyncio.timeout(_LOOK):
                if await self._seed(self._keys_of(counter, window), told):
                    raise Away
        except Exception as error:
            raise self._away(error) from error

    async def _asked(
        self, counter: Counter, window: Window, held: int, need: int, least: int, parts: int, wait: float
    ) -> Given:
        if not self.up:
            raise Away
        try:
            amount, left = await within(wait, self._answer(counter, window, held, need, least, parts))
        except Exception as error:
            raise self._away(error) from error
        if amount == CLOSED:
            return Given(0, 0, closed=True)
        if amount == UNTOLD:
            raise Untold
        if amount < 0:
            raise Away
        return Given(amount, max(0, left))

    async def _answer(
        self, counter: Counter, window: Window, held: int, need: int, least: int, parts: int
    ) -> tuple[int, int]:
        amount, left = await self._once(counter, window, held, need, least, parts)
        if amount == OTHER_EPOCH:
            await self._meet()
            amount, left = await self._once(counter, window, held, need, least, parts)
        return amount, left

    def _away(self, error: Exception) -> Away:
        if isinstance(error, Away):
            return error
        if not isinstance(error, TimeoutError):
            self._lose(error)
        return Away()

    async def _once(
        self, counter: Counter, window: Window, held: int, need: int, least: int, parts: int
    ) -> tuple[int, int]:
        unit = _unit(counter)
        args: list[Any] = [self.epoch, self._host, time.monotonic_ns()]
        args += [-(-amount // unit) for amount in (held, need, least)]
        args += [min(counter.limit // unit, LARGEST), window.begins, _until(window), int(counter.per == AT_ONCE)]
        args += [parts, _RUNNING_KEPT, _KEPT, self.ledger if counter.remembered else "", GATHERED]
        amount, left = await self._give(self._keys_of(counter, window), args)
        return (int(amount) * unit if amount > 0 else int(amount)), int(left) * unit

    def _keys_of(self, counter: Counter, window: Window) -> tuple[str, str, str]:
        return f"{self._prefix}:{counter.name}:{window.begins}", *self._keys


def _unit(counter: Counter) -> int:
    return _FINE if counter.what == "money" else 1


def _until(window: Window) -> int:
    return 0 if window.ends >= FOREVER else window.ends


@contextlib.asynccontextmanager
async def connected(settings: StoreSettings, state: Path, memory: str, clock: Clock) -> AsyncIterator[Store]:
    """The store while the host serves, and whether it answers is found out on the way; `memory` names what the host
    remembers of its parts: one that has forgotten them is another one.
    """
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    pool = BlockingConnectionPool.from_url(
        settings.url.reveal(),
        max_connections=16,
        timeout=_LOOK,
        socket_timeout=_LOOK,
        socket_connect_timeout=_LOOK,
        # A connection that the store has closed meanwhile is no outage; no question counts twice.
        retry=Retry(NoBackoff(), 1),
    )
    async with Redis.from_pool(pool) as client:
        name = f"{host_name(state)}-{memory}"
        store = Store(client, settings.prefix, name, state / "quota-epoch", clock, settings.wait_ms / 1000)
        running = asyncio.ensure_future(store.run())
        try:
            yield store
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


def host_name(state: Path) -> str:
    """The name under which a host is known to the store, the same after a restart."""
    path = state / "host-name"
    try:
        return path.read_text().strip()
    except OSError:
        name = secrets.token_hex(8)
        path.write_text(name)
        return name
