"""A token taken apart with suspicion, before a library sees it: bounded in size, depth and shape."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Final, NamedTuple

LONGEST: Final = 8192
_LONGEST_HEADER: Final = 2048
_MOST_BRACKETS: Final = 512
_DEEPEST: Final = 32
_SEGMENT: Final = re.compile(rb"[A-Za-z0-9_-]+\Z")


class Malformed(ValueError):  # noqa: N818 - a verdict
    """It is no token."""


class Parts(NamedTuple):
    """What a token says, none of it verified."""

    algorithm: str
    kid: str | None
    claims: dict[str, Any]


def parts_of(token: bytes) -> Parts:
    """Take a token apart; raises Malformed, quickly, for whatever is none."""
    if len(token) > LONGEST or token.count(b".") != 2:
        raise Malformed
    head, body, signature = token.split(b".")
    if len(head) > _LONGEST_HEADER or not all(map(_SEGMENT.match, (head, body, signature))):
        raise Malformed
    header, claims = _object(head), _object(body)
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not (kid is None or isinstance(kid, str)) or "crit" in header:
        raise Malformed
    return Parts(algorithm, kid, claims)


def _object(segment: bytes) -> dict[str, Any]:
    try:
        text = base64.urlsafe_b64decode(segment + b"=" * (-len(segment) % 4))
        _check_depth(text)
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError, binascii.Error):
        raise Malformed from None
    if not isinstance(found, dict):
        raise Malformed
    return found


def _check_depth(text: bytes) -> None:
    """Refuse what nests deeply; brackets in text count too, of which claims have few."""
    if text.count(b"{") + text.count(b"[") > _MOST_BRACKETS:
        raise Malformed
    depth = deepest = 0
    for byte in re.findall(rb"[\[\]{}]", text):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        raise Malformed


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed  # readers differ in which of two they believe
    return found


def _no_constant(_text: str) -> Any:
    raise Malformed
