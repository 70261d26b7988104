"""Says in the log, now and then, which worker fails its attempts and how: retries keep that from clients.

What the log tells of anyway is left out: that nobody is there, that it falls silent, drains or refuses the gateway.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.proxy import trouble
from tailrace.proxy.fault import Whose

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.fault import Fault

log: Final = logging.getLogger("tailrace")
EVERY: Final = 10.0
"""Seconds between two lines about one worker."""
MANY: Final = 0.2
"""The share of failed attempts from which on the list of workers shows it."""
_TOLD_ELSEWHERE: Final = frozenset({"connect_failed", "suspect"})
_LONGEST: Final = 200
_SECRET: Final = re.compile(
    r"(?i)\bbearer\s+\S+|(?<=://)[^\s/@]+@"
    r"|\b(?:api[-_ ]?key|authorization|password|secret|token)\b['\"]?\s*[:=]\s*\S+"
    r"|(?=[\w+/=.-]*\d)[\w+/=-]{20,}"
)
"""What looks like a credential: an engine that fails may say what it was sent."""


class _Worker:
    """What has come of a worker's attempts since the log last said so."""

    __slots__ = ("before", "failed", "told")

    def __init__(self) -> None:
        self.failed = 0
        self.before = 0.0
        self.told = float("-inf")


class Failing:
    """The failed attempts of one process; `ended` gives how many attempts have ended at the worker of a name."""

    def __init__(self, ended: Callable[[str], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._ended = ended
        self._clock = clock
        self._workers: dict[str, _Worker] = {}

    def note(self, attempt: Attempt, fault: Fault) -> None:
        """An attempt has failed, and has been counted."""
        if fault.whose not in (Whose.ENGINE, Whose.NETWORK) or not fault.sent or fault.kind in _TOLD_ELSEWHERE:
            return
        worker = attempt.worker
        if trouble.mendable(worker):
            return
        known = self._workers.setdefault(worker.name, _Worker())
        known.failed += 1
        now = self._clock()
        if now - known.told < EVERY:
            return
        ended = self._ended(worker.name)
        # A series that was dropped for want of room begins anew.
        of = max(int(ended - known.before), known.failed)
        words = _words(attempt, fault)
        log.warning("worker %s failed %d of %d attempts: %s", worker.name, known.failed, of, words)
        if known.failed > MANY * of:
            trouble.show(worker, f"failed {known.failed} of {of} attempts: {words}")
        known.failed, known.before, known.told = 0, ended, now

    def forget(self, name: str) -> None:
        """The worker is gone."""
        self._workers.pop(name, None)


def _words(attempt: Attempt, fault: Fault) -> str:
    status = f"{attempt.status} " if attempt.status >= 400 else ""
    text = _SECRET.sub("…", fault.message[: 2 * _LONGEST])
    cut = text[:_LONGEST] + ("…" if len(text) > _LONGEST else "")
    return f"{status}{cut.rstrip('.')} ({fault.kind})"
