"""Records as the admin port gives them: JSON that people and their tools read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tailrace.proxy.trace.context import SAMPLED, span_id
from tailrace.proxy.trace.pieces import pieces_of
from tailrace.proxy.trace.told import Flaw, Record, Tried


def summary(record: Record, offset_ns: int, seat: int) -> dict[str, Any]:
    """What one line says of a call; `offset_ns` makes Unix time of its moments, `seat` is its process."""
    return {
        "request_id": record.id,
        "trace_id": None if record.trace is None else record.trace.trace_id,
        "began": _time(record.started + offset_ns),
        "took_ms": _ms(record.took),
        "ttft_ms": _ms(record.first - record.started) if record.first else None,
        "status": record.status,
        "ending": record.ending,
        "fault": _flaw(record.flaw),
        "route": record.route,
        "model": record.model,
        "stream": record.stream,
        "attempts": len(record.tries),
        "process": seat,
    }


def whole(record: Record, offset_ns: int, seat: int) -> dict[str, Any]:
    """All that is known of it, with its pieces of time."""
    traced = record.trace
    return summary(record, offset_ns, seat) | {
        "method": record.method,
        "path": record.path,
        "served_model": record.served,
        "class": record.service_class or None,
        "source": record.source or None,
        "bytes_in": record.size,
        "bytes_out": record.delivered,
        "usage": None if record.usage is None else dict(zip(_USAGE, record.usage, strict=True)),
        "kept_for": traced.why if traced is not None and traced.why else None,
        "sampled": traced is not None and bool(traced.flags & SAMPLED),
        "tries": [_tried(record, tried) for tried in record.tries],
        "pieces": [
            {
                "name": piece.name,
                "depth": depth,
                "start_ms": _ms(piece.began - record.started),
                "took_ms": _ms(piece.ended - piece.began),
                "attempt": piece.number or None,
                "note": piece.note,
            }
            for piece, depth in _ordered(record)
        ],
    }


_USAGE = ("prompt", "completion", "cached", "estimated")


def _ordered(record: Record) -> list[tuple[Any, int]]:
    """The pieces with how deep each lies, each behind its parent."""
    pieces = pieces_of(record)
    found: list[tuple[Any, int]] = []

    def add(at: int, depth: int) -> None:
        found.append((pieces[at], depth))
        for number, piece in enumerate(pieces):
            if piece.parent == at:
                add(number, depth + 1)

    add(0, 0)
    return found


def _tried(record: Record, tried: Tried) -> dict[str, Any]:
    return {
        "number": tried.number,
        "why": tried.why,
        "worker": tried.worker,
        "served_model": tried.served,
        "span_id": None if record.trace is None else span_id(record.trace.spans, tried.number),
        "end": tried.end or None,
        "status": tried.status or None,
        "fault": _flaw(tried.flaw),
    }


def _flaw(flaw: Flaw | None) -> dict[str, str] | None:
    return None if flaw is None else {name: value for name, value in flaw._asdict().items() if value}


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)


def _time(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
