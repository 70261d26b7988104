"""Limits that several hosts share: Valkey (or Redis) divides them, one script for each question.

For each counter and window a hash holds what every host has been given; their sum is what is gone. A host sends along
what it holds, so that a store which lost its last writes learns them again. A store that lost everything has another
epoch, which its hosts notice by their next question: windows that began before that epoch are closed, because nobody
knows what was spent in them, and the next ones are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from tailrace.plugins.quota.windows import AT_ONCE, FOREVER, Clock, Window
from tailrace.proxy.config import AtLeast, AtMost, Secret, setting

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from tailrace.plugins.quota.authority import Counter

log = logging.getLogger("tailrace")
LARGEST: Final = 2**53
"""Scripts count in doubles."""
_PARTS: Final = 2
_KEPT: Final = 120
_RUNNING_KEPT: Final = 30
RENEW: Final = 10.0
_OTHER_EPOCH: Final = -1
_CLOSED: Final = -2
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_LOOK: Final = 1.0

_GIVE: Final = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return {-1, 0} end
local since = tonumber(redis.call('GET', KEYS[3]) or '0')
local host, number, held = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local need, least, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local begins, ends, running = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10] == '1'
if not running and begins < since then return {-2, 0} end
local now = tonumber(redis.call('TIME')[1])
local all = redis.call('HGETALL', KEYS[1])
local has, until_, last = {}, {}, {}
for at = 1, #all, 2 do
  local kind, name, amount = string.sub(all[at], 1, 1), string.sub(all[at], 2), tonumber(all[at + 1])
  if kind == '=' then has[name] = amount elseif kind == '@' then until_[name] = amount else last[name] = amount end
end
if last[host] and number <= last[host] then return {-3, 0} end
local gone, hosts = held, 1
for name, amount in pairs(has) do
  if running and (until_[name] or 0) < now and name ~= host then
    redis.call('HDEL', KEYS[1], '=' .. name, '@' .. name, '#' .. name)
  elseif name ~= host then
    gone, hosts = gone + amount, hosts + 1
  end
end
local free = limit - gone
local grant = 0
if free >= least then
  grant = math.max(0, math.min(free, math.max(need, math.floor(free / (tonumber(ARGV[11]) * hosts)))))
end
redis.call('HSET', KEYS[1], '=' .. host, string.format('%.0f', held + grant), '#' .. host, ARGV[3])
if running then
  redis.call('HSET', KEYS[1], '@' .. host, now + tonumber(ARGV[12]))
  redis.call('EXPIRE', KEYS[1], 2 * tonumber(ARGV[12]))
elseif ends > 0 then
  redis.call('EXPIREAT', KEYS[1], ends + tonumber(ARGV[13]))
end
return {grant, free - grant}
"""
"""One question at a time for each counter of a host. What the host says that it holds counts: an answer that it did not
get was never spent. A question that was overtaken by a later one is not answered."""
_BEGIN: Final = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then redis.call('SET', KEYS[2], ARGV[2]) end
return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('TIME')}
"""


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


@dataclass(frozen=True, slots=True)
class Given:
    """What the store gives this host of a counter, and what is left for everybody; nothing `until` a window ends."""

    amount: int
    left: int
    closed: bool = False


class Store:
    """The connection to the store, kept by `run`; `known` is the epoch that this host last saw, over restarts."""

    def __init__(self, client: Redis, prefix: str, host: str, memory: Path, clock: Clock, wait: float) -> None:
        self._client = client
        self._prefix = prefix
        self._host = host
        self._memory = memory
        self._clock = clock
        self._wait = wait
        self._give = client.register_script(_GIVE)
        self._begin = client.register_script(_BEGIN)
        self._epoch: str | None = None
        self.up = False
        self.epochs = 0
        """How often the store was found to have lost its memory."""

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
            epoch, began, moment = await self._begin(keys=self._keys, args=[fresh, since])
        epoch = epoch.decode()
        self._clock.agree(int(moment[0]) + int(moment[1]) / 1e6)
        if known is not None and epoch != known and float(began) == 0:
            await self._client.set(self._keys[1], self._clock.now())
        if epoch != known:
            if known is not None:
                self.epochs += 1
                log.error("the store of limits has lost its memory: windows that are running give nothing more")
            self._memory.write_text(epoch)
        self._epoch = epoch
        if not self.up:
            self.up = True
            log.info("the store of limits answers")

    def _recall(self) -> str | None:
        with contextlib.suppress(OSError):
            return self._memory.read_text().strip() or None
        return None

    def _lose(self, error: BaseException) -> None:
        if self.up or self._epoch is None:
            log.error("the store of limits does not answer, leases are used up meanwhile: %r", error)
        self.up = False
        self._epoch = self._epoch or ""

    async def more(self, counter: Counter, window: Window, held: int, need: int, least: int) -> Given:
        """A larger part of a limit for this host, which holds so much of it; raises Away."""
        return await self._asked(counter, window, held, need, least, _PARTS, self._wait)

    async def tell(self, counter: Counter, window: Window, held: int) -> None:
        """Say how much this host holds, no more than before: to keep it, or to give some back; raises Away."""
        await self._asked(counter, window, held, 0, 0, LARGEST, _LOOK)

    async def _asked(
        self, counter: Counter, window: Window, held: int, need: int, least: int, parts: int, wait: float
    ) -> Given:
        if not self.up:
            raise Away
        try:
            async with asyncio.timeout(wait):
                amount, left = await self._once(counter, window, held, need, least, parts)
                if amount == _OTHER_EPOCH:
                    await self._meet()
                    amount, left = await self._once(counter, window, held, need, least, parts)
        except Exception as error:
            if not isinstance(error, TimeoutError):
                self._lose(error)
            raise Away from error
        if amount == _CLOSED:
            return Given(0, 0, closed=True)
        if amount < 0:
            raise Away
        return Given(amount, max(0, left))

    async def _once(
        self, counter: Counter, window: Window, held: int, need: int, least: int, parts: int
    ) -> tuple[int, int]:
        args: list[Any] = [self._epoch, self._host, time.monotonic_ns(), held, need, least, counter.limit]
        ends = 0 if window.ends >= FOREVER else window.ends
        args += [window.begins, ends, int(counter.per == AT_ONCE), parts, _RUNNING_KEPT, _KEPT]
        key = f"{self._prefix}:{counter.name}:{window.begins}"
        amount, left = await self._give(keys=(key, *self._keys), args=args)
        return int(amount), int(left)


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
