"""The quota plugin: a call is admitted where every limit that holds for it has room, decided in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from tailrace.plugins.quota.accounts import Account, Accounts, Amounts, Bounds
from tailrace.plugins.quota.answers import headers_of, refusal
from tailrace.plugins.quota.asking import Asking, Unanswered
from tailrace.plugins.quota.demand import UNCOUNTED, Demand, demand_of
from tailrace.plugins.quota.estimates import Estimates
from tailrace.plugins.quota.part import part
from tailrace.plugins.quota.reservation import Reservation, unstated
from tailrace.plugins.quota.store import StoreSettings
from tailrace.proxy.config import AtLeast, AtMost, Secret, setting
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.identity import Identity
from tailrace.proxy.limit import Limit
from tailrace.proxy.plugin import Key, Needs, Plugin
from tailrace.proxy.tariff import Tariff

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.ground import Places
    from tailrace.proxy.head import Head
    from tailrace.proxy.host import HostPart
    from tailrace.proxy.outcome import Outcome

_TURNS: Final = 8
_UNKNOWN: Final = "Whether this caller's limits have room cannot be told at the moment."
_UNPRICED: Final = "This caller has a budget in money, and no plugin before `quota` says what calls cost."
_HELD: Final[Key[Reservation]] = Key("quota")
_BOUNDS: Final[Key[Bounds]] = Key("quota bounds")


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
        self._accounts = Accounts(config.limits)
        self._estimates = Estimates()
        self._asking: Asking | None = None
        self.admitted = self.waited = self.unknown = 0
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
        bounds = self._accounts.of(call.fact(Identity), call.model)
        accounts = bounds.accounts
        if not accounts or call.route.local is not None:
            return None
        call[_BOUNDS] = bounds
        tariff, demand = None, UNCOUNTED
        if bounds.counted:
            tariff = call.fact(Tariff)
            if tariff is None and bounds.money:
                raise Reject(503, "quota_unavailable", _UNPRICED, whose=Whose.GATEWAY)
            demand = demand_of(call, self._estimates.of(call.model), self.config.unbounded)
        assert self._asking is not None
        held = Reservation(self._asking.purse, demand.most, tariff)
        held.asked, held.prompt_bytes = demand.asked, demand.prompt_bytes
        missing = [account for account in accounts if not held.take(account)]
        if missing:
            return self._admit_late(call, held, accounts, demand, missing)
        self._admit(call, held, demand)
        return None

    def _admit(self, call: Call, held: Reservation, demand: Demand) -> None:
        if demand.unnamed:
            demand.bound(call, held.amounts.completion)
        self.admitted += 1
        call[_HELD] = held
        call.provide(held)

    async def _admit_late(
        self, call: Call, held: Reservation, accounts: Sequence[Account], demand: Demand, missing: list[Account]
    ) -> None:
        await self._fetch(call, held, accounts, demand, missing)
        self._admit(call, held, demand)

    async def _fetch(
        self, call: Call, held: Reservation, accounts: Sequence[Account], demand: Demand, missing: list[Account]
    ) -> None:
        """Get leases for what is missing; admit with less where there is room for what is likely, or refuse."""
        try:
            short = await self._short(held, missing)
            less = demand.lowered(self._left(short), held.tariff) if short else None
            if less is not None:
                held.give_back()
                held.amounts = less
                short = await self._short(held, [account for account in accounts if not held.take(account)])
                demand.bound(call, less.completion)
        except BaseException:
            held.settle(None)
            raise
        if short:
            held.settle(None)
            raise self._refuse(short[0])

    async def _short(self, held: Reservation, missing: Sequence[Account]) -> Sequence[Account]:
        """The accounts that have not enough after all, once the authority has been asked."""
        asking = self._asking
        assert asking is not None
        waited = False
        for _ in range(_TURNS):
            wants = [
                (account.counter, amount)
                for account in missing
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
            missing = [account for account in missing if not held.take(account)]
        return [account for account in missing if not held.take(account)]

    def _left(self, short: Sequence[Account]) -> list[tuple[Account, int]]:
        assert self._asking is not None
        return [(account, self._asking.purse.available(account.counter)) for account in short]

    def _refuse(self, account: Account) -> Reject:
        self.refused[account.what] = self.refused.get(account.what, 0) + 1
        assert self._asking is not None
        return refusal(account, self._asking.purse.ends(account.counter) - time.monotonic())

    def on_answer(self, call: Call, head: Head) -> None:
        """Say what is left."""
        if _BOUNDS in call and self._asking is not None:
            for name, value in headers_of(call[_BOUNDS].shown, self._asking.purse, anthropic=call.route.anthropic):
                head.set(name, value)

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Settle."""
        if _HELD not in call:
            return
        held = call[_HELD]
        usage = outcome.usage
        if not any(attempt.sent_ns for attempt in call.tries) and not call.source:
            held.settle(None)
            return
        # Another model may have been asked in the end, at another price.
        held.tariff = call.fact(Tariff) or held.tariff
        if usage is None:
            held.settle(unstated(held, outcome))
            return
        prompt = usage.prompt or (held.likely_prompt if usage.estimated else 0)
        held.settle(Amounts(prompt, usage.completion, usage.cached))
        if held.prompt_bytes and not usage.estimated:
            learned = self._estimates.of(call.model)
            learned.note(held.prompt_bytes, usage.prompt, held.asked, usage.completion)

    def metrics(self) -> list[tuple[str, dict[str, str], float]]:
        """How calls were decided."""
        return [
            ("admitted_total", {}, self.admitted),
            ("waited_total", {}, self.waited),
            ("unknown_total", {}, self.unknown),
            *(("refused_total", {"what": what}, count) for what, count in self.refused.items()),
        ]
