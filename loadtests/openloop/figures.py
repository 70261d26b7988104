"""From the records of a run to its figures, one set a phase."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from openloop.options import Options
from openloop.percentiles import summary
from openloop.record import Outcome, Record
from openloop.run import Result
from openloop.schedule import NS

Figures = dict[str, Any]


def figures_of(options: Options, result: Result) -> Figures:
    """All figures, ready for JSON. Latencies are milliseconds of requests that ended ok."""
    phases = []
    for index, phase in enumerate(options.phases):
        if phase.measured and result.ended > result.phase_starts[index]:
            end = result.phase_starts[index + 1]
            if result.interrupted:
                end = min(end, result.ended)
            mine = [record for record in result.records if record.phase == index]
            phases.append(_phase(phase.rate, mine, result.records, (result.phase_starts[index], end)))
    lag = summary(result.lags)
    return {
        "options": _shown_options(options),
        "interrupted": result.interrupted,
        "phases": phases,
        "generator": {
            "loop_lag_ms": lag,
            "cpu_share": round(result.cpu_seconds * NS / max(1, result.ended - result.phase_starts[0]), 4),
            "void": lag.get("p99", 0.0) > options.max_lag,
        },
    }


def errors_of(result: Result) -> tuple[int, int]:
    """(errors, requests) of the measured phases."""
    measured = [record for record in result.records if record.measured]
    return sum(record.error_kind() is not None for record in measured), len(measured)


def record_line(record: Record, start: int) -> Figures:
    """One request as it goes into --records: milliseconds, the schedule's from the start of the run."""

    def since_due(moment: int) -> float | None:
        return round((moment - record.scheduled) / 1e6, 4) if moment else None

    return {
        "number": record.number,
        "phase": record.phase,
        "measured": record.measured,
        "scheduled_ms": round((record.scheduled - start) / 1e6, 4),
        "sent_ms": since_due(record.sent),
        "connect_ms": round(record.connecting / 1e6, 4) if record.connecting else None,
        "first_byte_ms": since_due(record.first_byte),
        "ttft_ms": since_due(record.contents[0]) if record.contents else None,
        "gaps_ms": [round(gap / 1e6, 4) for gap in record.gaps()],
        "end_ms": since_due(record.end),
        "status": record.status or None,
        "outcome": record.outcome,
        "detail": record.detail,
        "prompt_tokens": record.prompt_tokens,
        "max_tokens": record.max_tokens,
    }


def _phase(rate: float, due: Sequence[Record], everything: Sequence[Record], window: tuple[int, int]) -> Figures:
    start, end = window
    seconds = (end - start) / NS
    ok = [record for record in due if record.outcome is Outcome.OK]
    kinds = Counter(kind for record in due if (kind := record.error_kind()))
    answered = sum(record.outcome is Outcome.OK and start <= record.end < end for record in everything)
    contents = sum(bisect_left(r.contents, end) - bisect_left(r.contents, start) for r in everything)
    return {
        "rate": rate,
        "seconds": round(seconds, 3),
        "offered_per_s": round(len(due) / seconds, 3),
        "achieved_per_s": round(answered / seconds, 3),
        "contents_per_s": round(contents / seconds, 1),
        "requests": len(due),
        "ok": len(ok),
        "unfinished": sum(record.outcome is Outcome.UNFINISHED for record in due),
        "errors": dict(kinds.most_common()),
        "error_samples": _samples(due),
        "latency_ms": {
            "ttft": summary(ttft for record in ok if (ttft := record.time_to_first_token) is not None),
            "itl": summary(gap for record in ok for gap in record.gaps()),
            "total": summary(record.total for record in ok),
            "first_byte": summary(record.first_byte - record.scheduled for record in ok),
            "connect": summary(record.connecting for record in due if record.connecting),
            "sent_late": summary(record.sent - record.scheduled for record in due if record.sent),
        },
    }


def _samples(records: Sequence[Record]) -> dict[str, str]:
    """One detail for each kind of error: what to look at first."""
    samples: dict[str, str] = {}
    for record in records:
        if (kind := record.error_kind()) and kind not in samples:
            samples[kind] = record.detail
    return samples


def _shown_options(options: Options) -> Figures:
    """The options without what may be secret: of headers only the names."""
    shown = asdict(options)
    shown["dialect"] = options.dialect.name
    shown["headers"] = [name for name, _ in options.headers]
    return shown
