"""What a request asks to be generated: the fields that bound an answer's tokens and choices, by the name of a route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tailrace.proxy.fault import Reject

if TYPE_CHECKING:
    from tailrace.proxy.body import JsonBody

TOKEN_FIELDS: Final = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "completions": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
}
"""The first is the one that a default is written to."""
CHOICE_FIELDS: Final = {"chat": ("n",), "completions": ("n", "best_of")}
ENGINE_DEFAULT: Final = {"completions": 16}
"""What an engine takes where a request names no bound; elsewhere it goes on to the end of the context."""


def whole_number(body: JsonBody, field: str) -> int | None:
    """A field's value, None where it is absent or null; raises Reject(400) where it is anything else."""
    value: Any = body.get(field)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    text = f"'{field}' must be a whole number."
    raise Reject(400, "invalid_request_error", text, param=field, kind="bad_request")


def tokens_asked(body: JsonBody, route: str) -> int | None:
    """The bound of one choice's tokens that a request names, None where it names none; raises Reject(400)."""
    least: int | None = None
    for field in TOKEN_FIELDS.get(route, ()):
        asked = whole_number(body, field)
        if asked is not None and (least is None or asked < least):
            least = asked
    return ENGINE_DEFAULT.get(route) if least is None else max(0, least)


def choices_asked(body: JsonBody, route: str) -> int:
    """How many answers a request wants to be generated, at least 1; raises Reject(400)."""
    most = 1
    for field in CHOICE_FIELDS.get(route, ()):
        asked = whole_number(body, field)
        if asked is not None and asked > most:
            most = asked
    return most
