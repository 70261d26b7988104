"""Medians over rounds, as tables; ratios of one proxy's CPU to each other's."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rig.scenarios import SCENARIOS, STREAM, Scenario

Measurement = dict[str, Any]
_MAX_FOREIGN = 0.12

# column title, path into the measurement, digits
Column = tuple[str, str, int]
_UNARY: tuple[Column, ...] = (
    ("CPU us/request", "cpu_us_per_request", 1),
    ("requests/s", "load/rps", 0),
    ("p50 us", "load/latency_us/p50", 0),
    ("p99 us", "load/latency_us/p99", 0),
)
_STREAM: tuple[Column, ...] = (
    ("CPU us/token", "cpu_us_per_token", 2),
    ("CPU us/request", "cpu_us_per_request", 0),
    ("tokens/s", "load/tokens_per_s", 0),
    ("first token p50 us", "load/latency_us/p50", 0),
    ("token delay p50 us", "load/token_delay_us/p50", 0),
    ("token delay p99 us", "load/token_delay_us/p99", 0),
)
_COMMON: tuple[Column, ...] = (
    ("CPU share", "cpu_share", 2),
    ("peak RSS MiB", "rss_peak_mib", 0),
    ("failed", "load/failed", 0),
    ("foreign", "foreign_proxy_core", 2),
)


def cost(scenario: Scenario) -> str:
    """The measurement that a scenario is compared by."""
    return "cpu_us_per_token" if scenario.mode == STREAM else "cpu_us_per_request"


def comparable(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Those with little foreign load on either core; all of them, where none has."""
    everything = list(measurements)
    quiet = [m for m in everything if max(m["foreign_proxy_core"], m["foreign_rig_core"]) <= _MAX_FOREIGN]
    return quiet or everything


def median_of(measurements: Iterable[Measurement], path: str) -> float | None:
    values = [value for m in measurements if (value := _dig(m, path)) is not None]
    return statistics.median(values) if values else None


def tables(measurements: Sequence[Measurement]) -> str:
    """One table a scenario; `n` counts the rounds behind each median, spread is (max - min) / median."""
    lines: list[str] = []
    for scenario in SCENARIOS.values():
        mine = [m for m in measurements if m["scenario"] == scenario.name]
        if mine:
            lines += [f"### {scenario.name}: {scenario.title}", "", *_table(scenario, mine), ""]
    return "\n".join(lines)


def ratios(measurements: Sequence[Measurement], of: str) -> str:
    """CPU of proxy `of` divided by that of each other one: below 1 it is the cheaper."""
    names = [name for name in dict.fromkeys(m["proxy"] for m in measurements) if name not in (of, "direct")]
    rows = []
    for scenario in SCENARIOS.values():
        mine = [m for m in measurements if m["scenario"] == scenario.name]
        own = median_of(comparable(m for m in mine if m["proxy"] == of), cost(scenario))
        if own is None:
            continue
        cells = []
        for name in names:
            other = median_of(comparable(m for m in mine if m["proxy"] == name), cost(scenario))
            cells.append(f"{own / other:.2f}" if other else "")
        rows.append(f"| {scenario.name} | " + " | ".join(cells) + " |")
    if not rows or not names:
        return ""
    head = [f"### CPU of {of} / CPU of", "", "| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    return "\n".join([*head, *rows])


def _table(scenario: Scenario, mine: Sequence[Measurement]) -> list[str]:
    columns = (*(_STREAM if scenario.mode == STREAM else _UNARY), *_COMMON)
    lines = [
        "| proxy | n | " + " | ".join(title for title, _, _ in columns) + " | spread | note |",
        "|---" * (len(columns) + 4) + "|",
    ]
    for name in dict.fromkeys(m["proxy"] for m in mine):
        rounds = comparable(m for m in mine if m["proxy"] == name)
        cells = [_cell(median_of(rounds, path), digits) for _, path, digits in columns]
        values = [value for m in rounds if (value := m[cost(scenario)])]
        spread = f"{(max(values) - min(values)) / statistics.median(values):.0%}" if len(values) > 1 else ""
        note = "" if all(m["keeps_up"] for m in rounds) else "does not keep up"
        lines.append(f"| {name} | {len(rounds)} | " + " | ".join(cells) + f" | {spread} | {note} |")
    return lines


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _dig(measurement: Measurement, path: str) -> Any:
    value: Any = measurement
    for key in path.split("/"):
        value = value.get(key) if isinstance(value, dict) else None
    return value
