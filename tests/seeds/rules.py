"""The rules that hold in every world, at every moment and at its end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tailrace.plugins.retry import BudgetSettings
from tailrace.proxy.allowing import MAX_TRIES

if TYPE_CHECKING:
    from seeds.world import Played, World


def hold_always(world: World) -> None:
    """What is true after every tick."""
    assert not world.broken, world.broken
    for process in world.processes:
        for entry in process.entries.values():
            taking = sum(worker.eligible for worker in entry.pool.workers)
            assert len(entry.candidates) >= math.ceil(taking / 2), "a pool was emptied"
    probed = [
        worker.name
        for process in world.processes
        for worker, circuit in process.breaker.panel.circuits.items()
        if circuit.probe is not None
    ]
    assert len(probed) == len(set(probed)), "two probes of one worker on one host"


def hold_at_the_end(world: World) -> None:
    """What is true when every call is over."""
    for played in world.calls:
        _call(played)
    for process in world.processes:
        for worker in process.workers:
            assert worker.inflight == 0, f"{worker.name} still counts {worker.inflight}"
            assert not worker.connections.busy, f"{worker.name} still has connections in use"
            assert worker.connections.opening == 0, f"{worker.name} still has connections being opened"
            assert "breaker" not in worker.bars
        _budgets(world, process)
    assert not world.loop.failures, world.loop.failures
    world.loop.run_until(world.loop.time() + 100.0)
    assert world.loop.pending() == 0, "timers were left behind"
    for played in world.calls:
        assert len(played.call.tries) == played.count, "an attempt began after the end of its call"


def _call(played: Played) -> None:
    call, notary = played.call, played.process.notary
    assert len(played.outcomes) == 1, f"{call.id} ended as {played.outcomes}"
    assert len(call.tries) + call.tried_before <= MAX_TRIES or len(call.tries) <= 1
    assert [attempt.number for attempt in call.tries] == list(range(1, len(call.tries) + 1))
    for attempt in call.tries:
        assert attempt.end is not None
        assert notary.ends[id(attempt)] == 1, (
            f"{call.id}: attempt {attempt.number} ended {notary.ends[id(attempt)]} times"
        )
    winners = [attempt for attempt in call.tries if attempt is played.race.winner]
    assert notary.commits[call.id] == len(winners) <= 1
    for winner in winners:
        assert all(each.started_ns <= winner.first_content_ns for each in call.tries), (
            "an attempt began after the commit"
        )
    assert sum(attempt.why == "hedge" for attempt in call.tries) <= 1
    shown = played.outcomes[0] in ("completed", "cut")
    assert shown <= len(winners)
    if call.body.get("store"):
        _seen_once(call)


def _seen_once(call: Any) -> None:
    """What has effects reaches one worker, but for those that cannot have seen it."""
    seen = [attempt for attempt in call.tries if attempt.sent_ns and (attempt.fault is None or attempt.fault.sent)]
    assert len(seen) <= 1, f"{call.id} was seen by {len(seen)} workers"


def _paid(call: Any) -> list[Any]:
    """The further attempts that cost something."""
    found = []
    for before, attempt in zip(call.tries, call.tries[1:], strict=False):
        free = before.fault is not None and not before.fault.sent and not before.status
        if not free:
            found.append(attempt)
    return found


def _budgets(world: World, process: Any) -> None:
    calls = [played for played in world.calls if played.process is process and played.call.tries]
    begun = [played.call.tries[0].started_ns / 1e9 for played in calls]
    if process.retry in process.chosen:
        config = process.retry.config
        paid = [attempt.started_ns / 1e9 for played in calls for attempt in _paid(played.call)]
        # They are paid for before they wait.
        _bounded(paid, begun, config.budget, max(config.back_off_limit, config.longest_wait), "retry")
    if process.hedge in process.chosen:
        hedges = [a.started_ns / 1e9 for played in calls for a in played.call.tries if a.why == "hedge"]
        budget = BudgetSettings(share=process.hedge.config.extra, per_second=0.0, window=30.0)
        _bounded(hedges, begun, budget, 0.0, "hedge")


def _bounded(spent: list[float], begun: list[float], budget: BudgetSettings, early: float, what: str) -> None:
    """In no window, less a slice, is there more than the budget."""
    window = budget.window
    for now in spent:
        count = sum(now - window * 0.9 + early < each <= now for each in spent)
        earned = sum(now - window - early <= each <= now for each in begun)
        most = budget.per_second * window + budget.share * earned
        assert count <= most + 1e-6, f"{count} {what} attempts of {earned} calls in {window:g} s"
