"""The end of a call: what it held is given back, and everybody who counts hears of it exactly once."""

from __future__ import annotations

import logging
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import FAILURES
from tailrace.proxy.outcome import AttemptEnd, Ending, Outcome
from tailrace.proxy.stages import first_shown

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

log: Final = logging.getLogger("tailrace")
# A client that leaves says nothing about the worker.
_ENDS: Final = {Ending.COMPLETED: AttemptEnd.WON, Ending.CLIENT_GONE: AttemptEnd.CANCELLED}


def finish(call: Call, outcome: Outcome) -> None:
    """Close a call with its one Outcome."""
    call.outcome = outcome
    _tell_usage(call, outcome)
    outcome.delivered_bytes += call.client.sent
    outcome.finished_ns = monotonic_ns()
    if call.taps is not None:
        call.taps.close(outcome)
    race = call.race
    if race is not None:
        race.cancel()
        winner = race.winner
        if winner is not None:
            shown = winner if winner.why != "rescue" else first_shown(call.tries, winner)
            outcome.first_content_ns = shown.first_content_ns
            if outcome.fault is not None:
                winner.fault = outcome.fault
            race.finished(winner, _ENDS.get(outcome.ending, AttemptEnd.FAILED))
    for name, on_complete in call.chain.pipeline.on_complete:
        try:
            on_complete(call, outcome)
        except FAILURES:
            log.exception("plugin '%s' failed in on_complete of request %s", name, call.id)
            call.client.service.plugin_failed(name)
    if call.sharing is not None:
        call.sharing.over(outcome)
    call.drop()
    call.client.service.completed(call, outcome)
    call.untie()
    call.client.finished(call)


def _tell_usage(call: Call, outcome: Outcome) -> None:
    """Say what the client was sent of what the engine made."""
    harvest, race = call.harvest, call.race
    if harvest is not None and race is not None and race.winner is not None:
        call.usage = harvest.usage()
    outcome.usage = call.usage
    if call.usage is None and call.sharing is not None:
        outcome.usage = call.sharing.used()
    if call.delivery is not None and outcome.ending is Ending.CLIENT_GONE:
        outcome.usage = call.delivery.end()
