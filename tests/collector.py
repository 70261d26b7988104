"""A collector that takes spans over OTLP/HTTP and keeps them, decoded; and the way to wait for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fakes import Connection, Request, Upstream, answer, until
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SERVER, CLIENT, INTERNAL = 2, 3, 1
ERROR = 2


@dataclass(frozen=True)
class Got:
    """One span."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent: str
    began: int
    ended: int
    status: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, dict[str, Any]], ...]
    events: tuple[str, ...]


class Collector:
    """What a collector at `url` has been given."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.url = upstream.url
        self.spans: list[Got] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[Request] = []
        self.status = 200

    async def take(self, conn: Connection, request: Request) -> None:
        self.headers.append(request)
        if self.status == 200:
            told = ExportTraceServiceRequest.FromString(request.body)
            for group in told.resource_spans:
                self.resources.append(_plain(group.resource.attributes))
                self.spans += [_got(span) for scope in group.scope_spans for span in scope.spans]
        await conn.send(answer(self.status, b"", "application/x-protobuf"))

    async def roots(self, count: int) -> list[Got]:
        """The calls' own spans, once there are so many."""
        await until(lambda: len(self._roots()) >= count, lambda: f"{len(self._roots())} of {count} calls came")
        return self._roots()

    def _roots(self) -> list[Got]:
        # Engines have such spans, too.
        return [span for span in self.spans if span.kind == SERVER and "tailrace.request_id" in span.attributes]

    def of(self, root: Got) -> list[Got]:
        """All spans of a call's trace but its own."""
        return [span for span in self.spans if span.trace_id == root.trace_id and span is not root]

    def attempts(self, root: Got) -> list[Got]:
        """Those of its attempts, in order."""
        found = [span for span in self.of(root) if span.kind == CLIENT and span.parent == root.span_id]
        return sorted(found, key=lambda span: span.attributes["tailrace.attempt.number"])


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """One that listens."""
    here: list[Collector] = []

    async def take(conn: Connection, request: Request) -> None:
        await here[0].take(conn, request)

    async with Upstream(take) as upstream:
        here.append(Collector(upstream))
        yield here[0]


def _got(span: Any) -> Got:
    return Got(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        status=span.status.code,
        attributes=_plain(span.attributes),
        links=tuple((link.span_id.hex(), _plain(link.attributes)) for link in span.links),
        events=tuple(each.name for each in span.events),
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
