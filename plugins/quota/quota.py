"""The quota plugin: a call is admitted where every limit that holds for it has room, decided in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from tailrace.plugins.quota.accounts import Account
from tailrace.plugins.quota.answers import refusal
from tailrace.plugins.quota.asking import Asking, Unanswered
from tailrace.plugins.quota.desk import Desk
from tailrace.plugins.quota.part import part
from tailrace.plugins.quota.reservation import Reservation
from tailrace.plugins.quota.store import StoreSettings
from tailrace.proxy.config import AtLeast, AtMost, Secret, setting
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.limit import Limit
from tailrace.proxy.plugin import Needs, Plugin
from tailrace.proxy.tariff import Tariff

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.ground import Places
    from tailrace.proxy.head import Head
    from tailrace.proxy.host import HostPart
    from tailrace.proxy.outcome import Outcome

_TURNS: Final = 8
_UNKNOWN: Final = "Whether this caller's limits have room cannot be told at the moment."


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What holds for everybody; keys and tokens bring limits of their own."""

    limits: tuple[Limit, ...] = setting(default=(), help="limits on each key, tenant, model or tag (`of`)")
    lease_wait_ms: Annotated[float, AtLeast(0.1), AtMost(1000)] = setting(
        default=2.0,
        help="how long a call whose process has no lease waits for an authority that has fallen silent",
        why="one that answers is waited for, which takes a third of that",
    )
    unknown: Literal["open", "closed"] = setting(
        default="open",
        help="what becomes of a call whose limits nobody can tell",
        why="an outage of limits is none of calls",
    )
    store: StoreSettings | None = setting(
        default=None, help="Valkey or Redis that divides limits between hosts; without it, each host has its own"
    )
    ledger: Secret | None = setting(
        default=None,
        help="where the ledger's records are, the `sink` of `billing`; without it, SQLite in the state folder",
        why="read only where the memory of what was spent is lost",
    )
    unbounded: Annotated[int, AtLeast(1)] = setting(
        default=4096,
        help="the tokens that an answer gets whose request names no bound, where tokens or money are limited",
    )


_Config = Config  # inside the class the name means its attribute


class Quota(Plugin[Config]):
    """Reserves in `on_request`, settles in `on_complete`; waits only where its process holds no lease."""

    Config = Config
    needs = Needs.USAGE
    provides = (Reservation,)

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        if any(limit.what == "money" for limit in config.limits):
            # The chain is refused where no plugin before this one says what calls cost.
            self.requires = (Tariff,)  # type: ignore[misc]
        self._desk = Desk(config.limits, config.unbounded)
        self._asking: Asking | None = None
        self.waited = self.unknown = 0
        self.refused: dict[str, int] = {}

    def host_part(self, places: Places) -> AbstractAsyncContextManager[HostPart]:
        """The authority of this host."""
        return part(places, self.config)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Holds this process's book of leases."""
        asking = self._asking = Asking(self.ground)
        await asking.join()
        sweeping = asyncio.ensure_future(asking.sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            await asking.leave()

    def on_request(self, call: Call) -> Coroutine[Any, Any, None] | None:
        """Take what the call needs of every limit, or refuse it; a coroutine where leases have to be had first."""
        assert self._asking is not None
        held = self._desk.reserve(call, self._asking.purse)
        return self._admit_late(call, held) if held is not None and held.missing else None

    async def _admit_late(self, call: Call, held: Reservation) -> None:
        """Get leases for what is missing; admit with less where there is room for what is likely, or refuse."""
        try:
            short = await self._short(held)
            less = held.demand.lowered(self._left(short), held.tariff) if short else None
            if less is not None:
                held.lower(less)
                held.take()
                short = await self._short(held)
                held.demand.bound(call, less.completion)
        except BaseException:
            held.settle(None)
            raise
        if short:
            held.settle(None)
            raise self._refuse(short[0])
        self._desk.admit(call, held)

    async def _short(self, held: Reservation) -> Sequence[Account]:
        """The accounts that have not enough after all, once the authority has been asked."""
        asking = self._asking
        assert asking is not None
        waited = False
        for _ in range(_TURNS):
            wants = [
                (account.counter, amount)
                for account in held.missing
                if not asking.purse.refuses(account.counter, amount := held.amounts.of(account.what, held.tariff))
            ]
            if not wants:
                break
            self.waited += not waited
            waited = True
            try:
                await asking.fetch(wants, self.config.lease_wait_ms / 1000)
            except Unanswered:
                self.unknown += 1
                if self.config.unknown == "open":
                    return []
                raise Reject(503, "quota_unavailable", _UNKNOWN, retry_after=1.0, whose=Whose.GATEWAY) from None
            # Another call may have been quicker to take what has come.
            held.take()
        held.take()
        return held.missing

    def _left(self, short: Sequence[Account]) -> list[tuple[Account, int]]:
        assert self._asking is not None
        return [(account, self._asking.purse.available(account.counter)) for account in short]

    def _refuse(self, account: Account) -> Reject:
        self.refused[account.what] = self.refused.get(account.what, 0) + 1
        assert self._asking is not None
        return refusal(account, self._asking.purse.ends(account.counter) - time.monotonic())

    def on_answer(self, call: Call, head: Head) -> None:
        """Say what is left."""
        if self._asking is not None:
            self._desk.tell(call, head, self._asking.purse)

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Settle."""
        self._desk.settle(call, outcome)

    def metrics(self) -> list[tuple[str, dict[str, str], float]]:
        """How calls were decided."""
        return [
            ("admitted_total", {}, self._desk.admitted),
            ("waited_total", {}, self.waited),
            ("unknown_total", {}, self.unknown),
            *(("refused_total", {"what": what}, count) for what, count in self.refused.items()),
        ]
