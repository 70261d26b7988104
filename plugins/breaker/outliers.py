"""What speaks against a worker: faults in a row, too many of them, hanging, and being slower than its like.

What its callers caused never does, nor an honest word that it is full.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tailrace.plugins.breaker.circuit import Why
from tailrace.plugins.breaker.record import Baseline
from tailrace.proxy.fault import Fault, Whose

if TYPE_CHECKING:
    from tailrace.plugins.breaker.circuit import Circuit
    from tailrace.plugins.breaker.settings import Config
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.fleet import Pool

STALLS: Final = frozenset({"first_content_timeout", "first_token_timeout", "unary_timeout", "gap_timeout"})
_OTHERS: Final = frozenset(
    {"suspect", "drained", "overloaded", "shutting_down", "unavailable", "total_timeout", "worker_refused"}
)
"""Silent hosts are another watch's, the total limit is the call's own, and the rest a worker says of itself."""
_THEIRS: Final = (Whose.NETWORK, Whose.ENGINE)
_STATUSES: Final = (429, 501)
_KINDS: Final = 1024
_FRESH: Final = 60.0


def blames(fault: Fault) -> bool:
    """Whether a fault speaks against its worker."""
    if fault.whose not in _THEIRS or fault.kind in _OTHERS or fault.status in _STATUSES:
        return False
    # A connection that had rested too long says nothing.
    return fault.sent or fault.kind != "connection_lost"


class Outliers:
    """Judges by the records of one process."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._baselines: dict[tuple[str, int], Baseline] = {}

    def after_fault(self, circuit: Circuit, fault: Fault) -> tuple[Why, str] | None:
        """Whether a worker is to be taken out after a fault, and why."""
        config, record = self._config, circuit.record
        if circuit.share < 1.0:
            return Why.AGAIN, f"it failed again as soon as it was back ({fault.kind})"
        if record.stalls >= config.stalls:
            return Why.STALLS, f"{record.stalls} waits in a row ended at their limit, and nothing came ({fault.kind})"
        if record.streak >= config.faults:
            return Why.FAULTS, f"{record.streak} faults in a row ({fault.kind})"
        calls = record.good + record.bad
        if calls >= config.volume and record.good < config.success * calls:
            return Why.SUCCESS, f"{record.bad} of {calls} calls failed lately ({fault.kind})"
        return None

    def ratio(self, attempt: Attempt, seconds: float) -> float:
        """How many times the usual time to first content of such attempts this is, which is learned from it, too."""
        kind = _kind(attempt)
        baseline = self._baselines.get(kind)
        if baseline is None:
            if len(self._baselines) >= _KINDS:
                self._baselines.clear()
            baseline = self._baselines[kind] = Baseline(seconds)
        return baseline.note(seconds)

    def so_far(self, attempt: Attempt, seconds: float) -> float:
        """The same of a wait that was broken off: the first content would have come later still."""
        baseline = self._baselines.get(_kind(attempt))
        return 0.0 if baseline is None else seconds / baseline.median

    def slowest(self, circuits: Iterable[Circuit], now: float) -> list[tuple[Circuit, str]]:
        """The slowest worker of each pool, where it is far slower than its others."""
        pools: dict[Pool, list[Circuit]] = {}
        for circuit in circuits:
            record = circuit.record
            settled = not circuit.verdict.open and circuit.share >= 1.0
            if settled and record.samples >= self._config.slow_samples and now - record.sampled < _FRESH:
                for pool in circuit.worker.pools:
                    pools.setdefault(pool, []).append(circuit)
        return [found for members in pools.values() if (found := self._slowest_of(members)) is not None]

    def _slowest_of(self, circuits: Sequence[Circuit]) -> tuple[Circuit, str] | None:
        if len(circuits) < 2:
            return None
        slowest = max(circuits, key=lambda circuit: circuit.record.pace)
        others = [circuit.record for circuit in circuits if circuit is not slowest]
        pace = statistics.median(record.pace for record in others)
        wait = statistics.median(record.wait for record in others)
        found = slowest.record
        if found.pace <= self._config.slow * pace or found.wait - wait < self._config.slow_least:
            return None
        return slowest, f"its time to first token is {found.pace / pace:.1f} times that of the others"


def _kind(attempt: Attempt) -> tuple[str, int]:
    """The model that was asked, which is another one than the call's after a fallback, and the size of the prompt."""
    return attempt.entry.name, attempt.call.size.bit_length() >> 1
