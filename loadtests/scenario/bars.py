"""Whether the bars of a scenario hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scenario.figures import Figures
from scenario.plan import Bar, Limit, Scenario


@dataclass(frozen=True, slots=True)
class Verdict:
    """One bar, what was measured and what was allowed; `value` is None where it could not be measured."""

    bar: Bar
    value: float | None
    bound: float | None

    @property
    def holds(self) -> bool:
        if self.value is None or self.bound is None:
            return False
        return self.value <= self.bound if self.bar.at_most is not None else self.value >= self.bound

    @property
    def told(self) -> str:
        """As a line for people."""
        bar = self.bar
        where = (f"of {bar.load} " if bar.load else "") + (f"in {bar.phase}" if bar.phase else "in the whole run")
        limit = bar.at_most if bar.at_most is not None else bar.at_least
        sign = "at most" if bar.at_most is not None else "at least"
        why = ""
        if isinstance(limit, Limit):
            plus = f" + {limit.plus:g}" if limit.plus else ""
            why = f" ({limit.times:g} x that of {limit.of}{plus})"
        bound = "unknown" if self.bound is None else f"{self.bound:g}"
        value = "not measured" if self.value is None else f"{self.value:g}"
        return f"{'holds ' if self.holds else 'MISSED'}  {bar.figure} {where}: {value}, {sign} {bound}{why}"


def judge(scenario: Scenario, figures: Callable[[str, str], Figures]) -> list[Verdict]:
    """Hold every bar against the figures of a phase and a load."""
    verdicts = []
    for bar in scenario.bars:
        limit = bar.at_most if bar.at_most is not None else bar.at_least
        bound: float | None
        if isinstance(limit, Limit):
            other = figures(limit.of, bar.load).get(bar.figure)
            bound = None if other is None else round(limit.times * other + limit.plus, 3)
        else:
            bound = limit
        verdicts.append(Verdict(bar, figures(bar.phase, bar.load).get(bar.figure), bound))
    return verdicts
