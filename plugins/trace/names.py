"""By which names spans say things: OpenTelemetry's conventions for HTTP, and release 0.1.0 of those for gen AI."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tailrace.proxy.metrics.generation import PROVIDER, operation_of
from tailrace.proxy.trace.told import Record, Tried


def of_call(record: Record, seat: int) -> dict[str, Any]:
    """The attributes of a call's own span."""
    said: dict[str, Any] = {
        "http.request.method": record.method,
        "http.route": record.path,
        "http.response.status_code": record.status,
        "http.request.body.size": record.size,
        "tailrace.request_id": record.id,
        "tailrace.outcome": record.ending,
        "tailrace.process": seat,
    }
    if record.model:
        said["gen_ai.operation.name"] = operation_of(record.route)
        said["gen_ai.request.model"] = record.model
        said["gen_ai.request.stream"] = record.stream
    if record.first:
        said["tailrace.time_to_first_content"] = (record.first - record.started) / 1e9
    if record.service_class:
        said["tailrace.class"] = record.service_class
    if record.source:
        said["tailrace.source"] = record.source
    if record.trace is not None and record.trace.why:
        said["tailrace.kept_for"] = record.trace.why
    if record.flaw is not None:
        said["error.type"] = record.flaw.kind
        said["tailrace.fault.whose"] = record.flaw.whose
    return said | _usage(record)


def of_attempt(record: Record, tried: Tried, *, last: bool) -> dict[str, Any]:
    """The attributes of an attempt's span; the last one that the client saw has the usage."""
    said: dict[str, Any] = {
        "gen_ai.operation.name": operation_of(record.route),
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": tried.served or record.model,
        "gen_ai.request.stream": record.stream,
        "tailrace.attempt.number": tried.number,
        "tailrace.attempt.why": tried.why,
        "tailrace.attempt.outcome": tried.end or "open",
    }
    said |= _server(tried.worker)
    if tried.status:
        said["http.response.status_code"] = tried.status
    if tried.first and tried.streaming and tried.sent:
        said["gen_ai.response.time_to_first_chunk"] = (tried.first - tried.sent) / 1e9
    if tried.flaw is not None:
        said["error.type"] = tried.flaw.kind
        said["tailrace.fault.whose"] = tried.flaw.whose
    return said | _usage(record) if last else said


def _server(worker: str) -> dict[str, Any]:
    """Where a worker is, by the URL it goes by."""
    if worker.startswith("unix:"):
        return {"server.address": worker.removeprefix("unix:")}
    parts = urlsplit(worker)
    return {
        "server.address": parts.hostname or worker,
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }


def _usage(record: Record) -> dict[str, Any]:
    if record.usage is None:
        return {}
    prompt, completion, cached, estimated = record.usage
    said: dict[str, Any] = {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": completion}
    if cached:
        said["gen_ai.usage.cache_read.input_tokens"] = cached
    if estimated:
        said["tailrace.usage.estimated"] = True
    return said
