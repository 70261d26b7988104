"""What can be written under `deadline`: which calls have how much time, and for what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from tailrace.proxy.config import Above, At, Seconds, SecondsOrOff, setting
from tailrace.proxy.named import no_model
from tailrace.proxy.routes import NAMES

Times = tuple[float | None, float | None]
PRESETS: Final[dict[str, Times]] = {
    "voice": (0.3, 0.12),
    "completion": (0.18, 0.1),
    "chat": (2.5, 0.2),
    "inline": (0.15, None),
}
"""Seconds for the whole and to the first content that products of this kind hold themselves to."""

_Time = Annotated[Seconds, Above(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Parts of the budget that are spoken for."""

    queue: _Time | None = setting(default=None, help="the longest wait for a turn in this gateway")
    model: _Time | None = setting(
        default=None, help="from the request's leaving for a worker to the first content", why="as workers are told"
    )
    reserve: SecondsOrOff = setting(default=0.0, help="for the way back; workers are told so much less")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """Which calls, and how much time they have; all conditions that are given must hold."""

    service_class: tuple[str, ...] = setting(default=(), key="class", help="classes of service")
    route: tuple[str, ...] = setting(default=(), help="route names: chat, completions, …")
    model: tuple[str, ...] = setting(default=(), help="model names, as clients write them")
    preset: Literal["voice", "completion", "chat", "inline"] | None = setting(
        default=None, help="`total` and `ttft` of a kind of product"
    )
    total: _Time | None = setting(default=None, help="a whole call, from its head")
    ttft: _Time | None = setting(default=None, help="the first content of a stream, from its head")
    stages: Stages = setting(default_factory=Stages, help="parts of it")

    def __post_init__(self) -> None:
        # What a preset holds is shown like what is written.
        total, ttft = self._times()
        object.__setattr__(self, "total", total)
        object.__setattr__(self, "ttft", ttft)

    def _times(self) -> Times:
        total, ttft = PRESETS[self.preset] if self.preset is not None else (None, None)
        return self.total or total, self.ttft or ttft

    def check(self) -> Iterable[str | At]:
        """A budget of nothing, routes that no call can have, and parts above the whole."""
        for number, route in enumerate(self.route):
            if route not in NAMES:
                yield At(f"there is no route '{route}'; routes: {', '.join(NAMES)}", "route", number)
        total, ttft = self._times()
        stages = self.stages
        if total is None and ttft is None and stages.queue is None and stages.model is None:
            yield "give a `preset`, `total`, `ttft`, or a stage's time"
        if total is not None and ttft is not None and ttft > total:
            yield At("the first content may not be due after the end", "ttft")
        least = min((time for time in (total, ttft) if time is not None), default=None)
        if least is not None and stages.reserve >= least:
            yield At("nothing would be left of the budget", "stages", "reserve")

    def holds(self, service_class: str, route: str, model: str) -> bool:
        """Whether calls of this kind are meant."""
        if self.service_class and service_class not in self.service_class:
            return False
        if self.route and route not in self.route:
            return False
        return not self.model or model in self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The first budget whose conditions hold for a call is its budget; a client can only have less."""

    budgets: tuple[BudgetSettings, ...] = setting(default=(), help="who has how much time")
    refuse_early: bool = setting(
        default=True,
        help="whether calls are refused at once that no worker is likely to answer in time",
        why="a refusal after 1 ms is worth more than one after the budget",
    )

    @property
    def service_classes(self) -> tuple[str, ...]:
        """The classes that budgets are for."""
        return tuple(name for budget in self.budgets for name in budget.service_class)

    def unknown_names(self, models: Collection[str], pools: Collection[str]) -> Iterator[At]:
        """Models that are not there: a budget of theirs would never hold."""
        for number, budget in enumerate(self.budgets):
            for place, name in enumerate(budget.model):
                if name not in models:
                    yield At(no_model(name), "budgets", number, "model", place)
