"""The one place where a fault becomes bytes: the OpenAI error object, or Anthropic's on its routes."""

from __future__ import annotations

import math

import orjson
from tailrace.proxy.fault import Fault
from tailrace.proxy.head import Head
from tailrace.proxy.sse import Event

_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_KNOWN_TYPES = frozenset(_ANTHROPIC_TYPES.values())
_FINAL_CODES = frozenset({"insufficient_quota"})


def body_of(fault: Fault, *, anthropic: bool, request_id: str) -> bytes:
    """The error object of a fault."""
    if anthropic:
        kind = None if fault.body is None else _known_type(_decoded(fault.body))
        if kind is None:
            kind = _ANTHROPIC_TYPES.get(fault.status, "invalid_request_error" if fault.status < 500 else "api_error")
        return orjson.dumps(
            {"type": "error", "error": {"type": kind, "message": fault.message}, "request_id": request_id}
        )
    kind = _OPENAI_TYPES.get(fault.status, "invalid_request_error" if fault.status < 500 else "server_error")
    if fault.code in _FINAL_CODES:
        kind = fault.code
    return orjson.dumps({"error": {"message": fault.message, "type": kind, "param": fault.param, "code": fault.code}})


def code_of(fault: Fault) -> str | int:
    """The code that a client reads in a fault's answer: the worker's own, where its error is passed on."""
    if fault.body is None:
        return fault.code
    try:
        code = orjson.loads(fault.body)["error"]["code"]
    except (ValueError, LookupError, TypeError):
        return fault.code
    return code if isinstance(code, str | int) else fault.code


def answer(fault: Fault, *, anthropic: bool, request_id: str) -> tuple[Head, bytes]:
    """Head and body for a client that has seen nothing yet."""
    headers = [(b"content-type", b"application/json"), *fault.headers]
    names = {name for name, _ in headers}
    if fault.retry_after is not None and b"retry-after" not in names:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(fault.retry_after))))
    if fault.code in _FINAL_CODES:
        headers.append((b"x-should-retry", b"false"))
    body = fault.body
    if body is None or anthropic:
        body = body_of(fault, anthropic=anthropic, request_id=request_id)
    return Head(fault.status, headers), body


def event(fault: Fault, *, anthropic: bool, request_id: str) -> bytes:
    """The event that ends a stream which had already begun; official SDKs raise on it."""
    payload = body_of(fault, anthropic=anthropic, request_id=request_id)
    return b"event: error\ndata: " + payload + b"\n\n" if anthropic else b"data: " + payload + b"\n\n"


def retold(data: bytes, last: Event, fault: Fault, *, anthropic: bool, request_id: str) -> bytes:
    """The end of a stream whose `last` event is an engine's error, so that this API's SDK raises on it.

    OpenAI's SDKs read every engine's; Anthropic's pass over an event of another name and over another shape, and know
    no engine's own types of errors. An event that is half out already is followed by ours.
    """
    if not anthropic or (last.name == b"error" and _known_type(last.json()) is not None):
        return data
    shown = data.removesuffix(last.raw)
    return shown + event(fault, anthropic=True, request_id=request_id)


def _known_type(told: object) -> str | None:
    """The type of an error that is in Anthropic's own words; None where it is in an engine's."""
    if not isinstance(told, dict) or told.get("type") != "error":
        return None
    error = told.get("error")
    kind = error.get("type") if isinstance(error, dict) else None
    return kind if isinstance(kind, str) and kind in _KNOWN_TYPES else None


def _decoded(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except ValueError:
        return None
