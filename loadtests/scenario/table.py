"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from scenario.figures import Figures

_COLUMNS = (
    ("requests", "requests", "{:.0f}"),
    ("offered/s", "offered_per_s", "{:.1f}"),
    ("good/s", "goodput_per_s", "{:.1f}"),
    ("errors", "errors", "{:.0f}"),
    ("inexact", "inexact", "{:.0f}"),
    ("refused", "refused", "{:.0f}"),
    ("TTFT p50", "ttft_p50_ms", "{:.0f}"),
    ("p99", "ttft_p99_ms", "{:.0f}"),
    ("max ms", "ttft_max_ms", "{:.0f}"),
    ("longest gap", "gap_max_ms", "{:.0f}"),
    ("extra tries", "extra_attempts", "{:.1%}"),
)
_NOTES = {
    "last_sent_ms": "last request sent to the struck worker after, ms",
    "returned_ms": "until it was back by itself, ms",
    "sent_after": "requests sent to it after",
    "back_ms": "from its start until it is used again, ms",
    "ready_ms": "from the start until ready and used, ms",
    "warm_ms": "until the median TTFT was as before, ms",
    "first_request_ms": "from the start until the first request, ms",
    "rolled_ms": "all of it, ms",
    "refusal_ms": "slowest refusal, ms",
    "refused_beyond": "refused beyond offered - 1.05 x capacity",
}


def table(report: dict[str, Any]) -> str:
    """What a reader needs to trust a run, or not to."""
    return "\n".join(_lines(report))


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield f"{report['scenario']}: {' '.join(report['about'].split())}"
    yield f"gateway: {report['gateway']}"
    rates = ", ".join(f"{load} {rate:g}/s" for load, rate in report["rates"].items())
    yield f"capacity: {rates}"
    yield from (f"  {said}" for said in report["happenings"])
    yield f"{'':<22}" + "".join(f"{label:>12}" for label, _, _ in _COLUMNS)
    for phase, loads in report["figures"].items():
        for load, figures in loads.items():
            if not figures["requests"]:
                continue
            yield f"{phase if load == 'all' else f'{phase} {load}':<22}" + "".join(_cells(figures))
    for phase, loads in report["figures"].items():
        notes = [f"{told}: {loads['all'][key]:g}" for key, told in _NOTES.items() if loads["all"].get(key)]
        if phase != "all" and notes:
            yield f"{phase}: {'; '.join(notes)}"
    yield from _troubles(report)
    machine = report["machine"]
    parts = ", ".join(f"{part} {share:.0%}" for part, share in machine["parts"].items())
    yield f"machine {machine['busy']:.0%} busy: {parts}, others {machine['foreign']:.0%}"
    lag, stalled = report["generator_lag_ms"], report["gateway_lag_above_5_ms"]
    own = f"; gateway above 5 ms in {stalled:.2%} of readings" if stalled is not None else ""
    yield f"loop lag p99: generator {lag.get('p99', 0.0):.1f} ms{own}"
    yield from (bar["told"] for bar in report["bars"])
    yield from (f"VOID: {why}" for why in report["void"])


def _cells(figures: Figures) -> Iterator[str]:
    for _, key, form in _COLUMNS:
        value = figures.get(key)
        yield f"{'' if value is None else form.format(value):>12}"


def _troubles(report: dict[str, Any]) -> Iterator[str]:
    for kind, times in report["faults"].items():
        yield f"error {kind} {times} times; one of them: {' '.join(report['fault_samples'][kind].split())[:200]}"
    yield from (f"inexact: {sample}" for sample in report["wrong_samples"])


def summary_of(reports: Iterable[dict[str, Any]]) -> str:
    """Many plays, a line each."""
    lines = [f"{'scenario':<20}{'gateway':<18}{'verdict':<9}{'requests':>9}{'errors':>8}{'inexact':>9}   TTFT p99, ms"]
    for report in reports:
        whole = report["figures"]["all"]["all"]
        points = ", ".join(
            f"{phase} {loads['all']['ttft_p99_ms']:.0f}"
            for phase, loads in report["figures"].items()
            if phase != "all" and "ttft_p99_ms" in loads["all"]
        )
        name = report["gateway"].split(",")[0].split(" --")[0]
        lines.append(
            f"{report['scenario']:<20}{name:<18}{report['status']:<9}{whole['requests']:>9.0f}{whole['errors']:>8.0f}"
            f"{whole['inexact']:>9.0f}   {points}"
        )
    return "\n".join(lines)
