"""Spans of a call that is over, made of its record: with the ids that its workers were told, and explicit times.

A tracer would give each span another id and start it now; so these are what a tracer hands to exporters, made directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from random import getrandbits
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from tailrace.plugins.trace import names
from tailrace.proxy.metrics.generation import operation_of
from tailrace.proxy.trace.context import span_id
from tailrace.proxy.trace.pieces import Piece, pieces_of
from tailrace.proxy.trace.told import Flaw, Record, Traced, Tried

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Spans:
    """Makes them for one service."""

    def __init__(self, service: str) -> None:
        release = version("tailrace")
        self._resource = Resource.create({"service.name": service, "service.version": release})
        self._scope = InstrumentationScope("tailrace", release)

    def of(self, record: Record, offset_ns: int, seat: int) -> list[ReadableSpan]:
        """Each piece of the call's time as a span; none for a call without a trace."""
        traced = record.trace
        if traced is None:
            return []
        pieces = pieces_of(record)
        contexts = [_context(traced, piece) for piece in pieces]
        tries = {tried.number: tried for tried in record.tries}
        return [
            self._span(record, piece, at, contexts, tries.get(piece.number), offset_ns, seat)
            for at, piece in enumerate(pieces)
        ]

    def _span(
        self,
        record: Record,
        piece: Piece,
        at: int,
        contexts: Sequence[SpanContext],
        tried: Tried | None,
        offset_ns: int,
        seat: int,
    ) -> ReadableSpan:
        traced = record.trace
        assert traced is not None
        name, kind = piece.name, SpanKind.INTERNAL
        attributes: dict[str, Any] = {}
        links: Sequence[Link] = ()
        events: Sequence[Event] = ()
        status = Status(StatusCode.UNSET)
        parent: SpanContext | None = None if at == 0 else contexts[piece.parent]
        if at == 0:
            name, kind = f"{record.method} {record.path}", SpanKind.SERVER
            attributes = names.of_call(record, seat)
            status = _status(record.failed, record.flaw)
            parent = _remote(traced)
        elif tried is not None:
            name, kind = f"{operation_of(record.route)} {tried.served or record.model}".strip(), SpanKind.CLIENT
            last = tried is record.tries[-1] or tried.end == "won"
            attributes = names.of_attempt(record, tried, last=last)
            status = _status(tried.end == "failed", tried.flaw)
            links = _links(record, tried)
            if tried.first:
                events = (Event("first_token", timestamp=tried.first + offset_ns),)
        return ReadableSpan(
            name=name,
            context=contexts[at],
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            events=events,
            links=links,
            kind=kind,
            status=status,
            start_time=piece.began + offset_ns,
            end_time=max(piece.began, piece.ended) + offset_ns,
            instrumentation_scope=self._scope,
        )


def _context(traced: Traced, piece: Piece) -> SpanContext:
    """The call's own and the attempts' have the ids that were told; nobody has heard of the others."""
    own = piece.parent < 0 or piece.number
    number = int(span_id(traced.spans, piece.number), 16) if own else getrandbits(64) | 1
    return SpanContext(int(traced.trace_id, 16), number, is_remote=False, trace_flags=_SAMPLED)


def _remote(traced: Traced) -> SpanContext | None:
    if not traced.parent:
        return None
    return SpanContext(int(traced.trace_id, 16), int(traced.parent, 16), is_remote=True, trace_flags=_SAMPLED)


def _links(record: Record, tried: Tried) -> list[Link]:
    """To the attempts before: those that a hedge ran beside, or the one whose place a retry or rescue took."""
    traced = record.trace
    if traced is None or tried.number < 2:
        return []
    before = [other for other in record.tries if other.number < tried.number]
    if tried.why != "hedge":
        before = before[-1:]
    return [
        Link(
            _context(traced, Piece("", 0, 0, 0, other.number)),
            {"tailrace.link.why": tried.why, "tailrace.attempt.outcome": other.end or "open"},
        )
        for other in before
    ]


def _status(failed: bool, flaw: Flaw | None) -> Status:
    return Status(StatusCode.ERROR, None if flaw is None else flaw.kind) if failed else Status(StatusCode.UNSET)
