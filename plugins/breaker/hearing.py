"""How attempts fare at each worker, and what follows for its circuit: what `breaker` does while calls pass.

Apart from the plugin, which is not compiled, so that its phases are these methods, with no step between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.plugins.breaker.circuit import SECOND, Circuit, Why
from tailrace.plugins.breaker.outliers import STALLS, Outliers, blames
from tailrace.plugins.breaker.panel import Panel
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.progress import progresses

if TYPE_CHECKING:
    from tailrace.plugins.breaker.settings import Config
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.fleet import Worker

_EVEN: Final[list[list[float]]] = [[1.0] * count for count in range(65)]


class Hearing:
    """Of one chain in one process."""

    def __init__(self, config: Config, panel: Panel, outliers: Outliers) -> None:
        self._slow = config.slow
        self._ramp = config.ramp
        self._panel = panel
        self._outliers = outliers

    def scores(self, call: Call, candidates: Sequence[Worker]) -> Sequence[float]:
        """All the same, but for workers that wait for their probe, and those that get only a share of their calls."""
        odd = self._panel.odd
        if not odd:
            return _EVEN[len(candidates)]
        circuits = [odd.get(worker) for worker in candidates]
        wanting = [circuit is None or circuit.wants(call) for circuit in circuits]
        for place, circuit in enumerate(circuits):
            if circuit is not None and circuit.waits and wanting[place]:
                return [float(other == place) for other in range(len(candidates))]
        return [float(wants) for wants in wanting]

    def nominate(self, call: Call, eligible: Sequence[Worker]) -> Sequence[Worker]:
        """Those of the eligible workers that wait for their probe, so that they are among those that are drawn."""
        odd = self._panel.odd
        if not odd:
            return ()
        return [worker for worker, circuit in odd.items() if circuit.waits and worker in eligible]

    def chosen(self, call: Call, attempt: Attempt) -> bool:
        """Note that there are calls; one that goes to an open worker is its probe, where it may have one."""
        panel = self._panel
        circuit = panel.circuits.get(attempt.worker) or panel.of(attempt.worker)
        panel.calls_at = attempt.started_ns
        if circuit.verdict.open:
            panel.claim(circuit, call, attempt)
        return True

    def committed(self, call: Call, attempt: Attempt) -> None:
        """An answer has begun."""
        circuit = self._panel.of(attempt.worker)
        now = attempt.first_content_ns
        ratio: float | None = None
        waited = 0.0
        if attempt.streaming and attempt.why != "rescue":
            waited = (now - attempt.started_ns) / SECOND
            ratio = self._outliers.ratio(attempt, waited)
        if circuit.probe is not None and circuit.probe[1] is attempt:
            self._probe_began(circuit, ratio)
        elif not circuit.verdict.open and attempt.started_ns >= circuit.verdict.since:
            circuit.record.succeeded(now / SECOND)
            if ratio is not None:
                circuit.record.paced(ratio, waited, now / SECOND)
            if circuit.share < 1.0 and circuit.step(ratio, self._slow, now, self._ramp):
                self._panel.odd.pop(attempt.worker, None)

    def _probe_began(self, circuit: Circuit, ratio: float | None) -> None:
        if circuit.verdict.why == Why.SLOW and ratio is not None and ratio > self._slow:
            self._reopen(circuit, f"its probe was {ratio:.1f} times as slow as is usual")
            return
        self._panel.close(circuit)
        self._panel.probed(circuit, "passed")

    def _reopen(self, circuit: Circuit, told: str) -> None:
        self._panel.open(circuit, Why.PROBE, told)
        self._panel.probed(circuit, "failed")

    def ended(self, call: Call, attempt: Attempt, end: AttemptEnd) -> None:
        """Hear of faults, and of attempts that another one outran; what their clients ended says nothing."""
        if end is AttemptEnd.WON:
            return
        circuit, fault = self._panel.of(attempt.worker), attempt.fault
        failed = end is AttemptEnd.FAILED and fault is not None and blames(fault)
        winner = attempt.race.winner
        outrun = end is AttemptEnd.CANCELLED and winner is not None and winner is not attempt and winner.end is None
        if circuit.probe is not None and circuit.probe[1] is attempt:
            if failed or outrun:
                told = fault.kind if fault is not None else "another was quicker"
                self._reopen(circuit, f"its probe failed ({told})")
            else:
                self._panel.probed(circuit, "neutral")
        elif circuit.verdict.open or attempt.started_ns < circuit.verdict.since:
            return
        elif failed and fault is not None:
            self._failed(circuit, call, attempt, fault)
        elif outrun:
            self._outrun(circuit, call, attempt)

    def _failed(self, circuit: Circuit, call: Call, attempt: Attempt, fault: Fault) -> None:
        stalled = fault.kind in STALLS
        if stalled and progresses(attempt.worker, call.client.service.clock.now, beside=attempt):
            return
        circuit.record.failed(self._panel.now() / SECOND, stalled=stalled)
        verdict = self._outliers.after_fault(circuit, fault)
        if verdict is not None:
            self._panel.open(circuit, *verdict)

    def _outrun(self, circuit: Circuit, call: Call, attempt: Attempt) -> None:
        now = self._panel.now()
        waited = (now - attempt.started_ns) / SECOND
        ratio = self._outliers.so_far(attempt, waited)
        if ratio > circuit.record.pace and call.stream:
            circuit.record.paced(ratio, waited, now / SECOND)
