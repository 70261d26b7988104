"""Plays one scenario from the first start to the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openloop.percentiles import summary
from openloop.schedule import NS

from scenario import scrape
from scenario.bars import Verdict, judge
from scenario.calm import Answers
from scenario.figures import Seen
from scenario.happenings import Happenings
from scenario.machine import Meter, Use
from scenario.plan import Scenario
from scenario.prompts import Prompts
from scenario.stage import Stage
from scenario.volley import Volley, acts_of

MOST_LAG_MS = 5.0
MOST_BUSY = 0.6
_IN_ANY_CASE = frozenset({"errors", "inexact"})
"""A machine that is too busy makes answers late; it is no excuse for wrong ones."""


@dataclass(slots=True)
class Report:
    """What came of a play. `void` says why its figures mean nothing, if they do."""

    scenario: Scenario
    gateway: str
    seen: Seen
    verdicts: list[Verdict]
    use: Use
    said: list[str]
    void: list[str] = field(default_factory=list)
    lag: dict[str, float] = field(default_factory=dict)
    stalled: float | None = None
    """The part of the gateways' own readings of their loop's lag that was above the bound."""

    @property
    def status(self) -> int:
        """0 where every bar holds, 1 where one does not, 3 where nobody can say."""
        missed = [verdict.bar.figure for verdict in self.verdicts if not verdict.holds]
        if self.void and not _IN_ANY_CASE.intersection(missed):
            return 3
        return 1 if missed else 0


async def play(
    stage: Stage, scenario: Scenario, prompts: Mapping[str, Prompts], right: Answers, rates: Mapping[str, float]
) -> Report:
    """Play it on a stage that is up."""
    volley = Volley(acts_of(scenario.phases), prompts, rates, scenario.seed)
    for gateway in stage.gateways:
        volley.add_door(gateway.at, lambda gateway=gateway: gateway.in_rotation)
    happenings = Happenings(stage, volley)
    meter = stage.meter()
    firing = asyncio.create_task(volley.fire())
    await asyncio.sleep(0)
    happenings.book()
    watching = asyncio.create_task(_watch(stage, volley, meter))
    try:
        # Whatever goes wrong ends the play at once: the load would go on against a fleet that is not what it should be.
        await asyncio.gather(firing, watching, happenings.over())
    finally:
        happenings.cancel()
        for task in (firing, watching):
            task.cancel()
    seen = Seen(scenario, volley, right, watching.result(), rates)
    return _report(scenario, stage, seen, meter.use, happenings.said)


async def _watch(stage: Stage, volley: Volley, meter: Meter) -> list[scrape.Page]:
    """By how much the gateways' counters grew in each act; the machine is looked at while it is measured."""
    grown = []
    before = await _page(stage)
    for act in volley.acts:
        await _until(volley.start + act.start)
        if act.phase.measured:
            meter.begin()
        await _until(volley.start + act.end)
        meter.end()
        after = await _page(stage)
        grown.append(scrape.grown(before, after))
        before = after
    return grown


async def _until(moment: int) -> None:
    await asyncio.sleep(max(0.0, (moment - time.monotonic_ns()) / NS))


async def _page(stage: Stage) -> scrape.Page:
    return scrape.added([await gateway.page() for gateway in stage.gateways])


def _report(scenario: Scenario, stage: Stage, seen: Seen, use: Use, said: list[str]) -> Report:
    volley = seen.volley
    report = Report(scenario, stage.gateways[0].shown, seen, judge(scenario, seen.figures), use, said)
    report.lag = summary(_measured_lags(volley))
    measured = [page for page, act in zip(seen.pages, volley.acts, strict=False) if act.phase.measured]
    report.stalled = scrape.share_above(scrape.added(measured), "tailrace_loop_stall_seconds", MOST_LAG_MS / 1000)
    if report.lag.get("p99", 0.0) > MOST_LAG_MS:
        report.void.append(f"the generator's own loop was {report.lag['p99']:.1f} ms late at p99")
    if report.stalled is not None and report.stalled > 0.01:
        report.void.append(
            f"the gateway's loop was more than {MOST_LAG_MS:g} ms late in {report.stalled:.1%} of its readings"
        )
    if use.busy > MOST_BUSY:
        report.void.append(f"the machine was {use.told}")
    return report


def _measured_lags(volley: Volley) -> list[int]:
    """The lags of the beats of measured phases."""
    lags: list[int] = []
    for act in volley.acts:
        if act.phase.measured:
            lags += volley.lags[act.start * 100 // NS : act.end * 100 // NS]
    return lags


def shown(report: Report) -> dict[str, Any]:
    """All of it, ready for JSON."""
    scenario, seen = report.scenario, report.seen
    return {
        "scenario": scenario.name,
        "about": scenario.about,
        "gateway": report.gateway,
        "status": {0: "holds", 1: "missed", 3: "void"}[report.status],
        "void": report.void,
        "bars": [
            {"holds": verdict.holds, "value": verdict.value, "bound": verdict.bound, "told": verdict.told}
            for verdict in report.verdicts
        ],
        "figures": {
            phase or "all": {load or "all": seen.figures(phase, load) for load in _loads(scenario)}
            for phase in _phases(scenario)
        },
        "counters": {phase or "all": seen.counters(phase) for phase in _phases(scenario)},
        "faults": dict(seen.faults()),
        "fault_samples": seen.samples(),
        "wrong": dict(seen.wrong()),
        "wrong_samples": seen.wrong_samples(),
        "rates": dict(seen.rates),
        "machine": {"busy": report.use.busy, "parts": report.use.parts, "foreign": report.use.foreign},
        "generator_lag_ms": report.lag,
        "gateway_lag_above_5_ms": report.stalled,
        "happenings": report.said,
    }


def _phases(scenario: Scenario) -> list[str]:
    return ["", *(phase.name for phase in scenario.phases if phase.measured)]


def _loads(scenario: Scenario) -> list[str]:
    return ["", *scenario.load] if len(scenario.load) > 1 else [""]
