"""A scenario as its file describes it, read strictly: a word that means nothing is an error with its place."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

KINDS_OF_EVENTS = Literal[
    "kill", "freeze", "partition", "start", "fault", "heal", "drain", "rolling_drain", "add", "restart_gateways"
]
FIGURES = Literal[
    "requests", "errors", "inexact", "refused", "good", "offered_per_s", "long_share", "prompt_tokens", "refusal_ms",
    "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms", "ttft_max_ms", "gap_max_ms", "goodput_per_s", "refused_beyond",
    "attempts", "extra_attempts", "attempts_retry", "attempts_hedge", "attempts_fallback", "attempts_rescue",
    "attempts_requeue", "ready_ms", "warm_ms", "back_ms", "rolled_ms", "returned_ms", "first_request_ms",
    "last_sent_ms", "sent_after",
]  # fmt: skip
"""What `figures` makes of a play, the notes of happenings included."""
T = TypeVar("T")


class PlanError(Exception):
    """A scenario that cannot be played as it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The workers. The last `sidecars` of them have a sidecar each; `spare` ones are started by an event only."""

    workers: int = 8
    sidecars: int = 0
    spare: int = 0
    kind: Literal["sim", "vllm"] = "sim"
    hosts: bool = False
    """Each worker on a host of its own: a network namespace behind a bridge, which can be cut off."""
    engine: dict[str, Any] = field(default_factory=dict)
    """Flags of the engine, without dashes."""
    sidecar: dict[str, Any] = field(default_factory=dict)
    """What the sidecar's file says beside its engine and address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The gateways; `config` is what their file says beside addresses, models and workers."""

    copies: int = 1
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One kind of request: `prompts` distinct ones, whose answers have the lengths `answers` in turn."""

    prompts: int = 64
    words: int = 1050
    answers: tuple[int, ...] = (16, 210)
    headers: dict[str, str] = field(default_factory=dict)
    per_s: float = 0.0
    """The requests a second that a share of 1 means; 0: what the fleet can carry of them, which is measured."""
    budget_ms: float = 0.0
    """An answer whose first token came later is no good put; 0: any whole answer is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens `after` so many seconds of its phase. `worker`: a number, or any of a kind, in turn."""

    after: float
    do: KINDS_OF_EVENTS
    worker: int | Literal["any", "bare", "sidecar", "same"] = "any"
    what: Literal["engine", "sidecar", "host"] = "engine"
    fault: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    """How many workers a rolling drain takes; 0: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some seconds of load: for each kind of request the share of the fleet's capacity that is offered."""

    name: str
    seconds: float
    load: dict[str, float] = field(default_factory=dict)
    measured: bool = True
    times: int = 1
    window: tuple[float, float] | None = None
    """Only requests due so many seconds before and after the phase's first event are looked at."""
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound that hangs on the same figure of another phase: `times` of it, and `plus`."""

    times: float = 1.0
    of: str
    plus: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What must hold of a figure; without `phase` of the whole run, without `load` of all kinds of requests."""

    figure: FIGURES
    phase: str = ""
    load: str = ""
    at_most: float | Limit | None = None
    at_least: float | Limit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One file. `short` replaces parts of it in the short form."""

    about: str
    fleet: Fleet = field(default_factory=Fleet)
    gateway: Gateway = field(default_factory=Gateway)
    load: dict[str, Load]
    phases: tuple[Phase, ...]
    bars: tuple[Bar, ...]
    seed: int = 1
    name: str = ""


_CALLED = {"phases": "name", "bars": "figure"}


def read(path: Path, *, short: bool = False) -> Scenario:
    """The scenario of a file; PlanError says what is wrong with it."""
    try:
        raw = _included(path)
    except (OSError, yaml.YAMLError) as error:
        raise PlanError(f"{path}: {error}") from None
    changed = raw.pop("short", {})
    # Both are looked at, whichever is wanted: what is wrong with the other would be found when it is played.
    whole = _checked(raw, path)
    brief = _checked(merged(raw, changed), path)
    return brief if short else whole


def _included(path: Path) -> dict[str, Any]:
    """A file, over the one that it is `based_on`."""
    raw = yaml.safe_load(path.read_text())
    if not isinstance(raw, dict):
        raise PlanError(f"{path}: expected a mapping")
    base = raw.pop("based_on", None)
    return raw if base is None else merged(_included(path.parent / base), raw)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged, phases and bars by what they are called; everything else is replaced."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = merged(old, value)
        elif key in _CALLED and isinstance(value, Mapping) and isinstance(old, list):
            result[key] = _changed(key, old, value)
        else:
            result[key] = value
    return result


def _changed(key: str, entries: list[Any], changes: Mapping[str, Any]) -> list[Any]:
    """The entries of a list, with what is changed of those that have this name."""
    called = _CALLED[key]
    for name in changes:
        if all(entry.get(called) != name for entry in entries):
            raise PlanError(f"{key}: there is nothing called '{name}' to change")
    return [merged(entry, changes.get(entry[called], {})) for entry in entries]


def _checked(raw: Mapping[str, Any], path: Path) -> Scenario:
    scenario = _decoded(Scenario, {**raw, "name": path.stem}, path.name)
    _check(scenario)
    return scenario


def _check(scenario: Scenario) -> None:
    names = {phase.name for phase in scenario.phases}
    for phase in scenario.phases:
        for load in phase.load:
            if load not in scenario.load:
                raise PlanError(f"{scenario.name}: phase {phase.name}: there is no load '{load}'")
        if phase.window is not None and not phase.events:
            raise PlanError(f"{scenario.name}: phase {phase.name}: a window needs an event")
    for bar in scenario.bars:
        others = [limit.of for limit in (bar.at_most, bar.at_least) if isinstance(limit, Limit)]
        for name in filter(None, (bar.phase, *others)):
            if name not in names:
                raise PlanError(f"{scenario.name}: bar {bar.figure}: there is no phase '{name}'")
        if bar.load and bar.load not in scenario.load:
            raise PlanError(f"{scenario.name}: bar {bar.figure}: there is no load '{bar.load}'")
        if (bar.at_most is None) == (bar.at_least is None):
            raise PlanError(f"{scenario.name}: bar {bar.figure}: give either at_most or at_least")


def _decoded(kind: type[T], raw: object, place: str) -> T:
    if not isinstance(raw, Mapping):
        raise PlanError(f"{place}: expected a mapping, got {raw!r}")
    hints = typing.get_type_hints(kind)
    fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := [name for name in raw if name not in fields]:
        raise PlanError(f"{place}: '{unknown[0]}' means nothing here; known: {', '.join(sorted(fields))}")
    values = {name: _value(hints[name], value, f"{place}.{name}") for name, value in raw.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise PlanError(f"{place}: {error}") from None


def _value(hint: Any, raw: object, place: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _decoded(typing.cast("type[Any]", hint), raw, place)
    if origin in (typing.Union, types.UnionType):
        return _either(arguments, raw, place)
    if origin is Literal:
        if raw in arguments:
            return raw
        raise PlanError(f"{place}: {raw!r} is none of {', '.join(map(str, arguments))}")
    if origin is tuple and isinstance(raw, list):
        inner = [arguments[0]] * len(raw) if arguments[-1] is Ellipsis else arguments
        if len(inner) == len(raw):
            return tuple(
                _value(one, item, f"{place}[{at}]") for at, (one, item) in enumerate(zip(inner, raw, strict=True))
            )
    if origin is dict and isinstance(raw, dict):
        return {str(key): _value(arguments[1], value, f"{place}.{key}") for key, value in raw.items()}
    if hint is Any:
        return raw
    if hint is float and isinstance(raw, int | float) and not isinstance(raw, bool):
        return float(raw)
    if isinstance(hint, type) and isinstance(raw, hint) and isinstance(raw, bool) == (hint is bool):
        return raw
    raise PlanError(f"{place}: {raw!r} is not what is expected here")


def _either(hints: tuple[Any, ...], raw: object, place: str) -> Any:
    if raw is None and type(None) in hints:
        return None
    faults = []
    for hint in hints:
        try:
            return _value(hint, raw, place)
        except PlanError as error:
            faults.append(error)
    raise faults[0]
