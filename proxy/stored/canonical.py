"""What a request asks, whatever it looks like: two that must get the same answer have the same canonical form."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import orjson
from tailrace.proxy.stored.long_numbers import has_long_number

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

SCHEMA: Final = b"1"
"""Of keys and entries: what another version has kept is not found, and not read."""
GENERATING: Final = frozenset({"chat", "completions", "messages"})
"""Routes whose answers are kept in one form for both ways of giving them."""
_SEPARATE: Final = frozenset({"responses"})
"""Routes whose answers say again what was asked, so that nothing of it is without effect."""
_NOWHERE: Final = ("model", "priority", "request_id")
_HARMLESS: Final = (
    "stream", "stream_options", "user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "service_tier", "store",
)  # fmt: skip
"""Fields that change nothing of an answer's content."""


_TOOL: Final = b'"tool_use"'


def fields_of(call: Call) -> dict[str, Any] | None:
    """The fields of a request as plugins have left them, None where it is none that could be kept."""
    body = call.body
    if body is None:
        return None
    raw = body.render() if body.edited else body.raw
    # Where what tools were given is JSON and no text, two requests may differ in such a number only.
    if call.route.name == "messages" and raw.find(_TOOL) >= 0 and has_long_number(raw):
        return None
    try:
        fields: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None  # a number that is too large, or half of a character
    return fields if isinstance(fields, dict) else None


def canonical(call: Call, scope: str, fields: dict[str, Any]) -> bytes:
    """The canonical form of a call with an entry; takes from `fields` what does not count.

    Only the fields themselves are put in order: within them, as in the schema of a tool, engines go by the order.
    """
    entry, route = call.entry, call.route.name
    assert entry is not None
    for name in _NOWHERE:
        fields.pop(name, None)
    if route not in _SEPARATE:
        for name in _HARMLESS:
            fields.pop(name, None)
    where = [SCHEMA.decode(), scope, route, entry.pool.name, entry.served or call.model]
    return orjson.dumps((where, sorted(fields.items())))


def key_of(form: bytes) -> bytes:
    """The name under which an answer is kept; processors have this function built in, and each call needs one."""
    return hashlib.sha256(form).digest()[:16]


def check_of(form: bytes) -> bytes:
    """What an entry says it is for, by another function: two requests with one key are told apart."""
    return hashlib.blake2b(form, digest_size=16).digest()
