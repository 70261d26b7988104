"""The figures of a run as text for a terminal."""

from collections.abc import Iterator
from typing import Any

from openloop.percentiles import QUANTILES

_ROWS = {
    "ttft": "TTFT",
    "itl": "ITL",
    "total": "total",
    "first_byte": "first byte",
    "connect": "connect",
    "sent_late": "sent late",
}


def table(figures: dict[str, Any]) -> str:
    """Everything that a reader needs to trust or distrust the run, phase by phase."""
    lines: list[str] = []
    for number, phase in enumerate(figures["phases"], 1):
        lines += _phase(number, phase)
        lines.append("")
    lines += _generator(figures)
    return "\n".join(lines)


def _phase(number: int, phase: dict[str, Any]) -> Iterator[str]:
    yield (
        f"phase {number}: {phase['rate']:g}/s for {phase['seconds']:g} s"
        f" | offered {phase['offered_per_s']:.1f}/s, achieved {phase['achieved_per_s']:.1f}/s"
        f" | {phase['contents_per_s']:.0f} content events/s"
    )
    yield f"{'ms':<12}{'count':>10}" + "".join(f"{name:>11}" for name in QUANTILES)
    for key, label in _ROWS.items():
        row = phase["latency_ms"][key]
        if row["count"]:
            yield f"{label:<12}{row['count']:>10}" + "".join(f"{row[name]:>11.2f}" for name in QUANTILES)
    errors = ", ".join(f"{kind} {count}" for kind, count in phase["errors"].items()) or "none"
    unfinished = f", unfinished {phase['unfinished']}" if phase["unfinished"] else ""
    yield f"requests {phase['requests']}, ok {phase['ok']}{unfinished}; errors: {errors}"
    for kind, detail in phase["error_samples"].items():
        yield f"  {kind}: {' '.join(detail.split())[:160] or '(no detail)'}"


def _generator(figures: dict[str, Any]) -> Iterator[str]:
    generator = figures["generator"]
    lag = generator["loop_lag_ms"]
    if lag["count"]:
        yield (
            f"generator: loop lag p50 {lag['p50']:.2f} p99 {lag['p99']:.2f} max {lag['max']:.2f} ms,"
            f" {generator['cpu_share'] * 100:.0f}% of a core"
        )
    if generator["void"]:
        yield "VOID: the generator itself ran late (see --max-lag); its figures say little about the endpoint"
    if figures["interrupted"]:
        yield "interrupted: what was still open counts as unfinished, not as an error"
