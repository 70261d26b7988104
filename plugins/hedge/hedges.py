"""How long calls wait before another worker is asked beside theirs, and what came of that: what `hedge` does.

Apart from the plugin, which is not compiled, so that its phases are these methods, with no step between.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.plugins.hedge.latencies import Latencies
from tailrace.proxy.fault import timed_out
from tailrace.proxy.plugin import Key
from tailrace.proxy.repeatable import repeatable
from tailrace.proxy.retry_budget import RetryBudget

if TYPE_CHECKING:
    from tailrace.plugins.hedge.settings import Config
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.outcome import AttemptEnd

LATE: Final = "first_token_timeout"
_TEXT: Final = frozenset({"chat", "completions", "responses", "messages"})
_KV_FULL: Final = 0.95
_LATER: Final = 0.5
"""By how much longer is waited where the whole budget is spent."""
_LOOKED_AT: Final = 16
_LIMIT: Final[Key[asyncio.TimerHandle]] = Key("first_token_timeout")

Kind = tuple[str, str, int]
"""Model, what is waited for, and size of the prompt: each size is four times the one before."""


class Hedges:
    """Of one chain in one process."""

    def __init__(self, config: Config, latencies: Latencies, budget: RetryBudget) -> None:
        self._config = config
        self._latencies = latencies
        self._budget = budget
        self._races = config.race
        self._floor = config.floor_ms / 1000
        self._unary = config.unary
        self._loaded_at = config.loaded
        self._limit = config.first_token_timeout
        self.fired = self.won = self.lost = self.moved = 0
        self.refused = {"budget": 0, "effects": 0, "loaded": 0}

    def patience(self, call: Call, tries: Sequence[Attempt]) -> float | None:
        """How long the attempt that has begun may be waited for before another is asked beside it."""
        now = call.client.service.clock.now
        attempt, first = tries[-1], len(tries) == 1
        if attempt.why == "hedge":
            self._budget.spend(now)
            self.fired += 1
            return None
        if first:
            self._budget.earn(now)
        entry = call.entry
        if entry is None or len(entry.candidates) < 2 or not (call.stream or self._whole(call)):
            return None
        usual = self._latencies.usual(_kind(call), now)
        if self._limit is not None and usual is not None:
            self._limit_wait(call, attempt, max(self._limit.times * usual, self._limit.at_least))
        if not self._races or (not first and _hedged(tries)):
            return None
        if usual is None:
            return self._unknown(call)
        wait = usual if usual > self._floor else self._floor
        # Of more calls than may be raced, those that are slow by far are to be.
        return wait * (1.0 + _LATER * (1.0 - self._budget.ease(now)))

    def _whole(self, call: Call) -> bool:
        """Whether an answer that is no stream may be raced."""
        return self._unary or call.route.name not in _TEXT

    def _unknown(self, call: Call) -> float | None:
        if not self._config.unknown:
            return None
        timeouts = call.chain.timeouts
        return self._config.unknown + timeouts.first_content(call.size) - timeouts.first_content(0)

    def allows(self, call: Call, tries: Sequence[Attempt], why: str) -> bool:
        """Whether a second attempt may begin beside a running one."""
        if why != "hedge":
            return True
        if _hedged(tries):
            return False
        if not repeatable(call):
            refused = "effects"
        elif self._budget.left(call.client.service.clock.now) < 1:
            refused = "budget"
        elif not self._idle_others(call, tries):
            refused = "loaded"
        else:
            return True
        self.refused[refused] += 1
        return False

    def _idle_others(self, call: Call, tries: Sequence[Attempt]) -> bool:
        assert call.entry is not None
        tried = [attempt.worker for attempt in tries]
        slow = tries[-1].worker
        others = call.entry.candidates
        if len(others) > _LOOKED_AT:
            others = random.sample(others, _LOOKED_AT)
        return any(worker not in tried and not self._loaded(worker, slow) for worker in others)

    def _loaded(self, worker: Worker, slow: Worker) -> bool:
        """Whether a worker has enough to do; where it does not say, it is compared with the slow one."""
        standing = worker.standing
        if standing.kv_use is not None and standing.kv_use > _KV_FULL:
            return True
        if standing.waiting is None:
            return worker.inflight > slow.inflight
        return standing.waiting >= self._loaded_at

    def chosen(self, call: Call, attempt: Attempt) -> bool:
        """No second attempt at a worker that has enough to do."""
        return attempt.why != "hedge" or not self._loaded(attempt.worker, call.tries[-1].worker)

    def committed(self, call: Call, attempt: Attempt) -> None:
        """Learn how long the call waited: from its beginning where it was raced, so that slow ones stay in sight."""
        if attempt.why == "rescue":
            return
        tries = call.tries
        if len(tries) > 1 and _hedged(tries):
            if attempt.why == "hedge":
                self.won += 1
            else:
                self.lost += 1
        if attempt.streaming or self._whole(call):
            begun = _raced_with(tries) if attempt.why == "hedge" else attempt
            waited = (attempt.first_content_ns - begun.started_ns) * 1e-9
            self._latencies.note(_kind(call), waited, call.client.service.clock.now)
        if self._limit is not None:
            _stop(call)

    # The limit that moves a call.

    def _limit_wait(self, call: Call, attempt: Attempt, limit: float) -> None:
        for other in call.tries:
            if other.fault is not None and other.fault.kind == LATE:
                return
        _stop(call)
        call[_LIMIT] = call.client.loop.call_later(limit, self._late, call, attempt, limit)

    def _late(self, call: Call, attempt: Attempt, limit: float) -> None:
        if attempt.end is None and repeatable(call):
            attempt.race.move(attempt, timed_out("first_token", limit))

    def ended(self, call: Call, attempt: Attempt, end: AttemptEnd) -> None:
        """Count what was moved; a call without a running attempt has no limit to wait for."""
        if self._limit is None:
            return
        if attempt.fault is not None and attempt.fault.kind == LATE:
            self.moved += 1
        for other in call.tries:
            if other.end is None:
                return
        _stop(call)


def _kind(call: Call) -> Kind:
    assert call.entry is not None
    return call.entry.name, "" if call.stream else call.route.name, call.size.bit_length() >> 1


def _hedged(tries: Sequence[Attempt]) -> bool:
    return any(attempt.why == "hedge" for attempt in tries)


def _raced_with(tries: Sequence[Attempt]) -> Attempt:
    """The attempt that a hedge was started beside."""
    at = 0
    while tries[at].why != "hedge":
        at += 1
    return tries[at - 1]


def _stop(call: Call) -> None:
    if _LIMIT in call:
        call[_LIMIT].cancel()
