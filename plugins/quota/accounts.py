"""Which limits hold for a call, and what the call takes of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace.plugins.quota.terms import Counter
from tailrace.plugins.quota.windows import AT_ONCE
from tailrace.proxy.identity import Identity
from tailrace.proxy.limit import Limit
from tailrace.proxy.outcome import Usage
from tailrace.proxy.tariff import MILLION, Tariff, charge

_REMEMBERED: Final = 16384
SHOWN: Final = ("requests", "tokens")


@dataclass(frozen=True, slots=True)
class Account:
    """One limit that holds for a call: the counter, and what of the call counts."""

    counter: Counter
    what: str
    shown: str
    """As clients read it: `100 requests per minute`."""
    one: bool
    """Whether every call counts as one."""
    running: bool
    """Whether the end of the call gives all of it back."""
    told: bytes
    """The limit as answers tell it."""


class Amounts:
    """What a call takes, or has used; `requests` is 0 where nothing is charged: nobody got an answer."""

    __slots__ = ("cached", "completion", "prompt", "requests")

    def __init__(self, prompt: int, completion: int, cached: int = 0, requests: int = 1) -> None:
        self.prompt = prompt
        self.completion = completion
        self.cached = cached
        self.requests = requests

    def of(self, what: str, tariff: Tariff | None) -> int:
        """The part that a limit on `what` counts."""
        if what in ("requests", "concurrent_requests"):
            return 1
        if what == "money":
            if tariff is None or not self.requests:
                return 0
            return charge(tariff.rates, self.prompt, self.cached, self.completion, self.requests)
        return self.prompt + self.completion


class KeptAmounts(Amounts):
    """What a call has used whose answer was made for another one: `share` millionths of that."""

    __slots__ = ("share",)

    def __init__(self, used: Amounts, share: int) -> None:
        super().__init__(used.prompt, used.completion, used.cached, used.requests)
        self.share = share

    def of(self, what: str, tariff: Tariff | None) -> int:
        """The part that a limit on `what` counts; it is a request like any other."""
        if what == "money":
            used = Usage(self.prompt, self.completion, self.cached)
            return 0 if tariff is None else tariff.of_kept().charge(used, self.requests)
        whole = Amounts.of(self, what, tariff)
        return whole if what == "requests" else (whole * self.share + MILLION // 2) // MILLION


Shown = tuple[str, tuple[Account, ...]]
"""What answers tell of, with the accounts that it is told of."""


class Bounds:
    """The accounts of a caller and model, and what of a call is to be known for them."""

    __slots__ = ("accounts", "counted", "identity", "money", "shown")

    def __init__(self, accounts: tuple[Account, ...], identity: Identity | None) -> None:
        self.accounts = accounts
        self.identity = identity
        self.money = any(account.what == "money" for account in accounts)
        self.counted = self.money or any("tokens" in account.what for account in accounts)
        """Whether it matters how many tokens a call has."""
        of_each = ((what, tuple(account for account in accounts if account.what == what)) for what in SHOWN)
        self.shown: tuple[Shown, ...] = tuple((what, found) for what, found in of_each if found)


class Accounts:
    """The accounts of each caller and model, remembered; `general` are the limits that hold for everybody."""

    def __init__(self, general: Iterable[Limit]) -> None:
        self._general = tuple(general)
        # An identity is long, and looked up on every call: found by where it lies, and kept there by the entry.
        self._known: dict[tuple[int, str], Bounds] = {}

    def of(self, identity: Identity | None, model: str) -> Bounds:
        """The limits that hold for a call."""
        found = self._known.get((id(identity), model))
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            limits = (*self._general, *(identity.limits if identity is not None else ()))
            found = Bounds(tuple(_accounts(limits, identity, model)), identity)
            self._known[id(identity), model] = found
        return found


def _accounts(limits: Sequence[Limit], identity: Identity | None, model: str) -> Iterator[Account]:
    """One account a counter, with the lowest of the limits that are set on it."""
    lowest: dict[str, tuple[Limit, Counter]] = {}
    for limit in limits:
        for whom in _whom(limit, identity, model):
            per = limit.per or AT_ONCE
            name = f"{':'.join(whom)}/{limit.what}/{per}/{limit.zone}"
            if name not in lowest or limit.amount < lowest[name][1].limit:
                lowest[name] = limit, Counter(name, limit.amount, per, limit.zone, limit.what, whom)
    for limit, counter in lowest.values():
        what = limit.what.replace("_", " ")
        one = limit.what.endswith("requests")
        shown, told = f"{what} per {limit.per}" if limit.per else what, str(limit.amount).encode()
        yield Account(counter, limit.what, shown, one, limit.per is None, told)


def _whom(limit: Limit, identity: Identity | None, model: str) -> Iterator[tuple[str, str]]:
    """Under what the use of a call is added up for a limit."""
    if limit.of == "model":
        if model:
            yield "model", model
    elif identity is None:
        yield "key", ""
    elif limit.of == "tenant":
        yield "tenant", identity.tenant
    elif limit.of == "tag":
        yield from (("tag", tag) for tag in identity.tags)
    else:
        yield "key", identity.key
