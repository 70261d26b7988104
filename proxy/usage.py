"""Usage as engines write it: where it stands in an answer or an event, and what it says."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import orjson
from tailrace.proxy.outcome import Usage

COMPLETION: Final = b'"completion_tokens"'
TOTAL: Final = b'"total_tokens"'
_NAMED: Final = b'"usage"'
# An object of numbers, and of objects of numbers and lists of them; no text in it holds a brace.
_VALUE: Final = rb"(null|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})"
_AFTER: Final = re.compile(rb'"usage"\s*:\s*' + _VALUE)
_ENTRY: Final = re.compile(rb',\s*"usage"\s*:\s*' + _VALUE)
_FIRST: Final = re.compile(rb'"usage"\s*:\s*' + _VALUE + rb"\s*,?\s*")
_NONE: Final = b"null"
_LARGEST: Final = 1 << 40


class _Cached(msgspec.Struct, gc=False):
    """What is nested in a usage object."""

    cached_tokens: int | None = None


class _Usual(msgspec.Struct, gc=False):
    """A usage object in OpenAI's spelling, as nearly all are."""

    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _Cached | None = None
    output_tokens: msgspec.Raw | None = None
    input_tokens_details: msgspec.Raw | None = None
    cache_read_input_tokens: msgspec.Raw | None = None
    cache_creation_input_tokens: msgspec.Raw | None = None


_usual: Final = msgspec.json.Decoder(_Usual).decode


def usage_in(text: bytes) -> Usage | None:
    """The usage stated in the text of an answer or an event, in any of the APIs' spellings; None where it says nothing.

    The name in quotes cannot stand in text that a model wrote: there, quotes are escaped.
    """
    at = text.rfind(_NAMED)
    if at < 0:
        return None
    value = _value_at(text, at + len(_NAMED))
    if value is None or value == _NONE:
        return None
    usage = _plain(value)
    if usage is None:
        try:
            usage = usage_of(orjson.loads(value))
        except orjson.JSONDecodeError:
            return None
    return usage if usage.prompt or usage.completion else None


def _value_at(text: bytes, at: int) -> bytes | None:
    """What follows a name that ends at a place: an object of numbers as it is usually written, else whatever fits."""
    if text[at : at + 2] == b":{":
        end = text.find(b"}", at)
        if end >= 0 and text.find(b"{", at + 2, end) < 0:
            return text[at + 1 : end + 1]
    found = _AFTER.match(text, at - len(_NAMED))
    return None if found is None else found.group(1)


def _plain(value: bytes) -> Usage | None:
    """The numbers of a usage object that has nothing strange, which takes a quarter of the time; None for any other."""
    try:
        common = _usual(value)
    except msgspec.DecodeError:
        return None
    prompt, completion, details = common.prompt_tokens, common.completion_tokens, common.prompt_tokens_details
    cached = (0 if details is None else details.cached_tokens) or 0
    if not (0 < prompt < _LARGEST and 0 <= completion < _LARGEST and 0 <= cached < _LARGEST):
        return None
    if common.output_tokens is not None or common.input_tokens_details is not None:
        return None
    if common.cache_read_input_tokens is not None or common.cache_creation_input_tokens is not None:
        return None
    return Usage(prompt, completion, cached)


def entry_of(text: bytes) -> re.Match[bytes] | None:
    """Where the entry stands in the text of an object, with the comma that goes with it; its value is group 1."""
    return _ENTRY.search(text) or _FIRST.search(text)


def usage_of(usage: dict[str, Any]) -> Usage:
    """The numbers of a usage object; what is no sensible number counts as nothing."""
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    completion = _count(usage.get("completion_tokens", usage.get("output_tokens")))
    prompt = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
    if not prompt:
        prompt = max(0, _count(usage.get("total_tokens")) - completion)  # all that some say of a reranking
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
        # In Anthropic's spelling the three are apart.
        cached = _count(usage.get("cache_read_input_tokens"))
        prompt += cached + _count(usage.get("cache_creation_input_tokens"))
    return Usage(prompt, completion, cached)


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < _LARGEST else 0
