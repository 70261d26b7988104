"""What a call comes to: the tokens of what its client was sent at the prices that held, and what was spent in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tailrace.proxy.ledger.settled import Settled
from tailrace.proxy.outcome import AttemptEnd, Ending, Usage

if TYPE_CHECKING:
    from tailrace.plugins.billing.ratios import Ratios
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.tariff import Tariff

GENERATE: Final = frozenset({"chat", "completions", "responses", "messages"})
READ: Final = GENERATE | {"embeddings", "rerank", "score", "classify", "pooling"}
"""The routes whose calls use tokens, be they only those of the prompt."""
_BYTES_OF_TOKEN: Final = 4
"""In an answer of which nothing else is known; English text has about as many."""
_NOTHING: Final = Usage()


def settled(call: Call, outcome: Outcome, tariff: Tariff, ratios: Ratios) -> Settled:
    """The numbers of an ended call, or of one whose answer is about to end well."""
    winner = None if call.race is None else call.race.winner
    billed = _NOTHING
    served = winner is not None and (outcome.ending is Ending.COMPLETED or _was_sent(winner, outcome))
    if served:
        billed = _billed(call, outcome, ratios)
    lost = _lost(call, winner, billed, served, ratios)
    requests = 1 if served else 0
    return Settled(
        amount=tariff.charge(billed, requests),
        status=outcome.status,
        prompt=billed.prompt,
        cached=billed.cached,
        completion=billed.completion,
        requests=requests,
        delivered=outcome.delivered_bytes,
        lost_prompt=lost.prompt,
        lost_completion=lost.completion,
        lost_amount=tariff.charge(lost, 0) if lost is not _NOTHING else 0,
        estimated=billed.estimated,
    )


def settled_kept(outcome: Outcome, usage: Usage, tariff: Tariff) -> Settled:
    """The numbers of an answer that was made for another call, at the prices of such."""
    return Settled(
        amount=tariff.charge(usage, 1),
        status=outcome.status,
        prompt=usage.prompt,
        cached=usage.cached,
        completion=usage.completion,
        requests=1,
        delivered=outcome.delivered_bytes,
        lost_prompt=0,
        lost_completion=0,
        lost_amount=0,
        estimated=usage.estimated,
    )


def _was_sent(winner: Attempt, outcome: Outcome) -> bool:
    """Whether a client got some of a stream that did not end well; a unary answer it gets whole or not at all."""
    return winner.streaming and outcome.usage is not None


def _billed(call: Call, outcome: Outcome, ratios: Ratios) -> Usage:
    """The usage of what was sent: the engine's figures, estimates where it gave none."""
    usage, route = outcome.usage, call.route.name
    if route not in READ:
        return _NOTHING
    if usage is not None and usage.prompt and not usage.estimated:
        ratios.note(call.model, call.size, usage.prompt)
        return usage
    completion = 0
    if usage is not None:
        completion = usage.completion
    elif route in GENERATE:
        held = 0 if call.race is None or call.race.winner is None else call.race.winner.held_bytes
        completion = held // _BYTES_OF_TOKEN
    prompt = usage.prompt if usage is not None and usage.prompt else ratios.prompt(call.model, call.size)
    return Usage(prompt, completion, 0 if usage is None else usage.cached, True)


def _lost(call: Call, winner: Attempt | None, billed: Usage, served: bool, ratios: Ratios) -> Usage:
    """What engines did for this call that nobody was sent: of attempts that lost, of an answer that was left."""
    if call.route.name not in READ or (served and len(call.tries) == 1 and _is_all(call.usage, billed)):
        return _NOTHING
    lost = Usage()
    for attempt in call.tries:
        if attempt is not winner and _has_worked(attempt):
            lost.prompt += billed.prompt or ratios.prompt(call.model, call.size)
            if winner is not None and served:
                lost.completion += _made_by(attempt, winner, billed)
    if winner is not None:
        made = call.usage
        if served:
            lost.completion += max(0, (made.completion if made is not None else 0) - billed.completion)
        else:
            made = made or Usage(ratios.prompt(call.model, call.size))
            lost = replace(lost, prompt=lost.prompt + made.prompt, completion=lost.completion + made.completion)
    return lost


def _made_by(loser: Attempt, winner: Attempt, billed: Usage) -> int:
    """What the loser of a race has made of a whole answer, by the time that it had for it; of a stream, nothing yet."""
    if winner.streaming or loser.end is not AttemptEnd.CANCELLED:
        return 0
    had, took = winner.first_content_ns - loser.sent_ns, winner.first_content_ns - winner.sent_ns
    return billed.completion if had >= took else billed.completion * had // took


def _is_all(made: Usage | None, billed: Usage) -> bool:
    return made is None or made.completion <= billed.completion


def _has_worked(attempt: Attempt) -> bool:
    """Whether an engine began on an attempt: it was sent, and not turned away at the door."""
    fault = attempt.fault
    return bool(attempt.sent_ns) and (fault is None or (fault.sent and not 400 <= attempt.status < 500))
