"""Which worker an attempt goes to: who may get it, what plugins think of each, and the one that is taken."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailrace.proxy.fault import FAILURES
from tailrace.proxy.fleet import MAX_CANDIDATES
from tailrace.proxy.mishap import go_on_without

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import ModelEntry, Worker
    from tailrace.proxy.pipeline import Scorer
    from tailrace.proxy.plugin import Target


def candidates_for(call: Call, entry: ModelEntry, target: Target | None) -> Sequence[Worker]:
    """The workers an attempt may go to, at most MAX_CANDIDATES; `target` is None for the first attempt."""
    if call.pinned is not None:
        return (call.pinned,) if call.pinned.reachable else ()
    if target is None:
        eligible = entry.candidates
    elif target.worker is not None:
        return (target.worker,)
    else:
        among = entry.candidates if target.pool is None else target.pool.eligible
        tried = [attempt.worker for attempt in call.tries]
        eligible = [worker for worker in among if worker not in tried] or among
    if len(eligible) <= MAX_CANDIDATES:
        return eligible
    return _drawn(call, eligible)


def _drawn(call: Call, eligible: Sequence[Worker]) -> Sequence[Worker]:
    """Those that plugins nominate, and others by chance."""
    drawn: dict[Worker, None] = {}
    for nominate in call.chain.pipeline.nominate:
        try:
            drawn.update(dict.fromkeys(nominate(call, eligible)[:MAX_CANDIDATES]))
        except FAILURES as error:
            without(call, nominate, "nominate", error)
    count = len(eligible)
    while len(drawn) < MAX_CANDIDATES:
        drawn[eligible[int(random.random() * count)]] = None
    return tuple(drawn)


def choose(call: Call, candidates: Sequence[Worker], scorers: tuple[Scorer, ...]) -> Worker | None:
    """The candidate with the best weighted sum of scores, at random among equals; None where all are excluded."""
    if not scorers:
        return candidates[int(random.random() * len(candidates))]
    if len(candidates) == 1:
        for _, score in scorers:
            try:
                if score(call, candidates)[0] < 0:
                    return None
            except FAILURES as error:
                without(call, score, "score_workers", error)
        return candidates[0]
    totals = [0.0] * len(candidates)
    for weight, score in scorers:
        try:
            for index, value in enumerate(score(call, candidates)):
                totals[index] += weight * value if value >= 0 else float("-inf")
        except FAILURES as error:
            without(call, score, "score_workers", error)
            return choose(call, candidates, tuple([other for other in scorers if other[1] is not score]))
    best = max(totals)
    if best == float("-inf"):
        return None
    ties = [worker for worker, total in zip(candidates, totals, strict=True) if total == best]
    return ties[0] if len(ties) == 1 else ties[int(random.random() * len(ties))]


def agreed(call: Call, attempt: Attempt) -> bool:
    """Whether every plugin lets this attempt go to the worker that was chosen."""
    for chosen in call.chain.pipeline.on_chosen:
        try:
            if not chosen(call, attempt):
                return False
        except FAILURES as error:
            without(call, chosen, "on_chosen", error)
    return True


def without(call: Call, policy: Callable[..., object], phase: str, error: BaseException) -> None:
    """Go on without what a policy says, where its plugin allows for that; else raise."""
    go_on_without(call, call.chain.pipeline.owners[policy], phase, error)
