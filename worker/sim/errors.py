"""What the server says when it refuses, in vLLM's words."""

from __future__ import annotations

import json
from typing import Any

import orjson

REASON = {
    200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 403: b"Forbidden", 404: b"Not Found",
    405: b"Method Not Allowed", 408: b"Request Timeout", 413: b"Request Entity Too Large", 422: b"Unprocessable Entity",
    429: b"Too Many Requests", 500: b"Internal Server Error", 501: b"Not Implemented", 502: b"Bad Gateway",
    503: b"Service Unavailable", 504: b"Gateway Timeout", 529: b"",
}  # fmt: skip

ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
QUEUE_FULL = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)
DRAINING = "cannot schedule new futures after shutdown"


class Refusal(Exception):  # noqa: N818  an answer like any other, not a fault of the program
    """A request that gets an error for an answer.

    `anthropic` says whether `/v1/messages` words it in Anthropic's shape: vLLM does so for what it finds out about the
    request itself, not for what its server or validation says.
    """

    def __init__(
        self, status: int, message: str, kind: str, param: str | None = None, *, anthropic: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.anthropic = anthropic
        self.retry_after: float | None = None
        self.bare = False
        """Sent from outside the middleware: neither `vary` nor `x-request-id` in the head."""

    def body(self, *, messages: bool) -> bytes:
        """The JSON to send; `messages` for the Anthropic route."""
        if messages and self.anthropic:
            return orjson.dumps({"type": "error", "error": {"type": self.kind, "message": str(self)}})
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return orjson.dumps({"error": error})


def bad_request(message: str, param: str | None = None) -> Refusal:
    """A request that is well formed and makes no sense."""
    return Refusal(400, message, "BadRequestError", param, anthropic=True)


def bad_value(message: str, param: str, value: object) -> Refusal:
    """A field out of its range."""
    return bad_request(f"{message} (parameter={param}, value={value})", param)


def unknown_model(name: object, aliases: tuple[str, ...]) -> Refusal:
    """A model that is not served here."""
    message = f"The model `{name}` does not exist. Valid aliases: {', '.join(aliases)}."
    return Refusal(404, message, "NotFoundError", "model", anthropic=True)


def invalid(kind: str, loc: str, msg: str, given: object, context: object = None) -> Refusal:
    """A body that the schema does not admit; `given` is shown, dicts and lists by size only."""
    if isinstance(given, dict | list):
        given = f"<{type(given).__name__} of {len(given)} items>"
    shown: dict[str, Any] = {"type": kind, "loc": loc, "msg": msg, "input": given if given is not None else "None"}
    if context is not None:
        shown["ctx"] = context
    return Refusal(400, f"1 validation error:\n  {shown}", "Bad Request", loc)


def neither(given: dict[str, Any], *names: str) -> Refusal:
    """A body that has none of the fields of which it needs one."""
    size = f"<dict of {len(given)} items>"
    lines = [{"type": "missing", "loc": f"body.{name}", "msg": "Field required", "input": size} for name in names]
    message = "\n  ".join([f"{len(names)} validation errors:", *map(str, lines)])
    return Refusal(400, message, "Bad Request", f"body.{names[0]}")


def engine_dead() -> Refusal:
    """The engine is gone; its API server still answers."""
    return engine_error(ENGINE_DEAD)


def engine_error(message: str) -> Refusal:
    """Something went wrong as the answer was made."""
    return Refusal(500, message, "InternalServerError", anthropic=True)


def queue_full() -> Refusal:
    """As many requests as allowed are running and waiting."""
    return Refusal(503, QUEUE_FULL, "Service Unavailable")


def draining(*, bare: bool = True) -> Refusal:
    """The server is shutting down; on most routes raised beyond all middleware."""
    refusal = Refusal(500, DRAINING, "InternalServerError", anthropic=True)
    refusal.bare = bare
    return refusal


def in_stream(message: str, kind: str = "InternalServerError", code: int = 500) -> bytes:
    """The event that ends a stream after its 200; vLLM writes it with the standard library, hence the spaces."""
    error = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return b"data: " + json.dumps(error).encode() + b"\n\n"
