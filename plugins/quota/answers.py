"""What clients are told of their limits: the customary headers on every answer, and when to come again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from tailrace.plugins.quota.accounts import SHOWN, Account, Shown
from tailrace.plugins.quota.purse import Purse
from tailrace.plugins.quota.windows import FOREVER
from tailrace.proxy.fault import Reject

_OPENAI: Final = {
    what: tuple(f"x-ratelimit-{part}-{what}".encode() for part in ("limit", "remaining", "reset")) for what in SHOWN
}
_ANTHROPIC: Final = {
    what: tuple(f"anthropic-ratelimit-{what}-{part}".encode() for part in ("limit", "remaining", "reset"))
    for what in SHOWN
}
_RUNNING: Final = 1.0
"""Seconds after which a call may try again that only waits for others to end."""
_LONGEST: Final = 86_400.0
_REMEMBERED: Final = 4096
_durations: Final[dict[int, bytes]] = {}


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


def headers_of(shown: Sequence[Shown], purse: Purse, *, anthropic: bool) -> list[tuple[bytes, bytes]]:
    """Limit, rest and reset of the tightest limit on each thing that is shown."""
    headers: list[tuple[bytes, bytes]] = []
    now = purse.now()
    names = _ANTHROPIC if anthropic else _OPENAI
    for what, accounts in shown:
        tightest = accounts[0]
        seen = purse.remaining(tightest.counter)
        if len(accounts) > 1:
            part = _part(tightest, seen)
            for account in accounts[1:]:
                its = purse.remaining(account.counter)
                if _part(account, its) < part:
                    tightest, seen, part = account, its, _part(account, its)
        of_limit, of_rest, of_reset = names[what]
        headers.append((of_limit, tightest.told))
        if seen is None:
            headers.append((of_rest, tightest.told))
            continue
        left, resets, ends = seen
        headers.append((of_rest, str(left).encode()))
        if 0 < resets < FOREVER:
            headers.append((of_reset, _moment(resets) if anthropic else _duration(ends - now)))
    return headers


def _part(account: Account, seen: tuple[int, int, float] | None) -> float:
    return 1.0 if seen is None else seen[0] / max(1, account.counter.limit)


def _moment(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


def _duration(seconds: float) -> bytes:
    """A length of time as this API writes it: 6m0s, 1s, 350ms."""
    if seconds < 1:
        return b"%dms" % max(0, math.ceil(seconds * 1000))
    whole = math.ceil(seconds)
    text = _durations.get(whole)
    if text is None:
        if len(_durations) >= _REMEMBERED:
            _durations.clear()
        text = _durations[whole] = _in_words(whole)
    return text


def _in_words(seconds: int) -> bytes:
    hours, rest = divmod(seconds, 3600)
    minutes, last = divmod(rest, 60)
    if hours:
        return b"%dh%dm%ds" % (hours, minutes, last)
    return b"%dm%ds" % (minutes, last) if minutes else b"%ds" % last
