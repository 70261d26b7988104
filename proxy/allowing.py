"""Whether a further attempt may start: three in all over every hop, and every policy has to agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.proxy.choosing import without
from tailrace.proxy.fault import FAILURES

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Pool, Worker
    from tailrace.proxy.head import RequestHead

MAX_TRIES: Final = 3
ATTEMPT: Final = b"x-tailrace-attempt"
"""Which attempt of its sender's a request is."""


def allowed(call: Call, why: str) -> bool:
    """Whether another attempt may start; raises what a policy raises that its plugin does not let pass."""
    if not call.tried_before and call.peer.trusted:
        call.tried_before = tried_before(call.head)
    if len(call.tries) + call.tried_before >= MAX_TRIES:
        return False
    for allow in call.chain.pipeline.allow:
        try:
            if not allow(call, call.tries, why):
                return False
        except FAILURES as error:
            without(call, allow, "allow", error)
    return True


def others(call: Call, attempt: Attempt | None = None) -> bool:
    """Whether there is a worker that has not been asked yet: of the call's model, or in place of one attempt's."""
    if call.pinned is not None or call.entry is None:
        return False
    if attempt is None:
        among = call.entry.candidates
    else:
        pool = strayed(attempt)
        among = attempt.entry.candidates if pool is None else pool.eligible
    return untried(call, among)


def untried(call: Call, among: Sequence[Worker]) -> bool:
    """Whether one of these workers has not been asked yet."""
    tried = [attempt.worker for attempt in call.tries]
    return any(worker not in tried for worker in among)


def strayed(attempt: Attempt) -> Pool | None:
    """The pool that a fallback led an attempt to; None where it is its model's own."""
    entry, worker = attempt.entry, attempt.worker
    if worker.pools and worker not in entry.pool.workers and not entry.adapter:
        return worker.pools[0]
    return None


def tried_before(head: RequestHead) -> int:
    """How many attempts the hop before has made already, by its own count."""
    told = head.get(ATTEMPT)
    if told is None or len(told) != 1 or not told.isdigit():
        return 0
    return max(int(told) - 1, 0)
