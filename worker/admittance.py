"""The first link of a sidecar's chain: only gateways that hold the hop key come in, and only while there is an engine.

It looks at heads alone, so a refusal costs no body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING

from tailrace.proxy.allowing import MAX_TRIES
from tailrace.proxy.budget import FIRST_HEADER, TOTAL_HEADER, Budget
from tailrace.proxy.fault import Reject
from tailrace.proxy.headers import LOAD_HEADER, STAGES_HEADER
from tailrace.proxy.hop import HEADER, REFUSED, HopKey
from tailrace.proxy.plugin import Key, Plugin
from tailrace.proxy.stages import Told, engine_told
from tailrace.proxy.tcp import round_trip
from tailrace.worker.report import Report

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head

_REQUEST_ID = re.compile(rb"req_[0-9a-f]{12,64}(?:-[2-9]){0,3}")
"""How gateways write theirs: one id leads through all logs."""
ATTEMPT = b"x-tailrace-attempt"
_STRANGER: Key[bool] = Key("stranger")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittanceConfig:
    """The key; None where only this host can connect."""

    hop: HopKey | None


class Admittance(Plugin[AdmittanceConfig]):
    """Checks the hop key, takes over the gateway's request id and count of attempts, says the load on answers."""

    Config = AdmittanceConfig

    def __init__(self, config: AdmittanceConfig, report: Report) -> None:
        super().__init__(config)
        self._report = report

    def on_open(self, call: Call) -> None:
        """Turn away strangers, and calls that could not reach the engine now."""
        hop, head = self.config.hop, call.head
        if hop is not None and not hop.admits(head.get(HEADER)):
            call[_STRANGER] = True
            raise Reject(401, REFUSED, "This worker serves only gateways that hold its hop key.", kind="unauthorized")
        given = head.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            call.id = given.decode()
        attempt = head.get(ATTEMPT)
        if attempt is not None and attempt.isdigit():
            call.tried_before = min(max(int(attempt[:4]) - 1, 0), MAX_TRIES)
        if call.route.local is None:
            call.time = _budget(call)
            refusal = self._report.refusal()
            if refusal is not None:
                raise refusal

    def on_answer(self, call: Call, head: Head) -> None:
        """Add the load; a refusal that no engine has seen says so, which makes it safe to ask another worker."""
        if _STRANGER in call:
            return
        unsent = head.status == 503 and all(try_.fault is not None and not try_.fault.sent for try_ in call.tries)
        head.headers.append((LOAD_HEADER, self._report.unsent() if unsent else self._report.load()))
        if call.tries:
            head.headers.append((STAGES_HEADER, _stages(call).written()))


def _budget(call: Call) -> Budget | None:
    """What the gateway says is left, less the time that its request took on its way here."""
    head = call.head
    total, first = head.get(TOTAL_HEADER), head.get(FIRST_HEADER)
    if total is None and first is None:
        return None
    travelled = int(round_trip(call.client.transport.get_extra_info("socket")) * 1e9) // 2
    return Budget.told(total, first, call.started_ns - travelled)


def _stages(call: Call) -> Told:
    """What the gateway cannot see: how long the call was here, how much of that in line, and what its engine says."""
    race = call.race
    winner = None if race is None else race.winner
    said = None
    if winner is not None and not winner.streaming and winner.held:
        said = engine_told(winner.held[-1])
    queued = call.waited_ns + (said.queue_ns if said is not None else 0)
    return Told(monotonic_ns() - call.started_ns, queued, said.decode_ns if said is not None else 0)
