"""What clients are told of their limits: the customary headers on every answer, and when to come again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from tailrace.plugins.quota.accounts import Account
from tailrace.plugins.quota.purse import Purse
from tailrace.plugins.quota.windows import FOREVER
from tailrace.proxy.fault import Reject

_SHOWN: Final = ("requests", "tokens")
_RUNNING: Final = 1.0
"""Seconds after which a call may try again that only waits for others to end."""
_LONGEST: Final = 86_400.0


def refusal(account: Account, wait: float) -> Reject:
    """The 429 of a call that a limit has no room for; `wait` are the seconds until its window ends."""
    counter = account.counter
    money = account.what == "money"
    if counter.per == "total":
        return Reject(429, "insufficient_quota", "The budget of this caller is spent.", kind="quota")
    wait = _RUNNING if account.running else min(_LONGEST, max(0.0, wait))
    if money:
        text = f"The budget of this caller for the {counter.per} is spent."
        return Reject(429, "insufficient_quota", text, retry_after=wait, kind="quota")
    text = f"The limit of {counter.limit} {account.shown} is reached."
    return Reject(429, "rate_limit_exceeded", text, retry_after=wait, kind="quota")


def headers_of(accounts: Sequence[Account], purse: Purse, *, anthropic: bool) -> Iterator[tuple[bytes, bytes]]:
    """Limit, rest and reset of the tightest limit on requests, and of that on tokens."""
    for what in _SHOWN:
        tightest: tuple[float, Account, int, float, float] | None = None
        for account in accounts:
            if account.what != what:
                continue
            left, resets, ends = purse.remaining(account.counter) or (account.counter.limit, 0.0, 0.0)
            part = left / max(1, account.counter.limit)
            if tightest is None or part < tightest[0]:
                tightest = part, account, left, resets, ends
        if tightest is None:
            continue
        _, account, left, resets, ends = tightest
        if anthropic:
            yield b"anthropic-ratelimit-%b-limit" % what.encode(), b"%d" % account.counter.limit
            yield b"anthropic-ratelimit-%b-remaining" % what.encode(), b"%d" % left
            if 0 < resets < FOREVER:
                yield b"anthropic-ratelimit-%b-reset" % what.encode(), _moment(resets)
        else:
            yield b"x-ratelimit-limit-%b" % what.encode(), b"%d" % account.counter.limit
            yield b"x-ratelimit-remaining-%b" % what.encode(), b"%d" % left
            if 0 < resets < FOREVER:
                yield b"x-ratelimit-reset-%b" % what.encode(), _duration(ends - time.monotonic())


def _moment(seconds: float) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


def _duration(seconds: float) -> bytes:
    """A length of time as this API writes it: 6m0s, 1s, 350ms."""
    if seconds < 1:
        return b"%dms" % max(0, math.ceil(seconds * 1000))
    whole = math.ceil(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, last = divmod(rest, 60)
    if hours:
        return b"%dh%dm%ds" % (hours, minutes, last)
    return b"%dm%ds" % (minutes, last) if minutes else b"%ds" % last
