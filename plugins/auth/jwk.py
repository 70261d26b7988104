"""The public keys that a key set may hold, and which algorithm each of them is good for."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt
import orjson

log = logging.getLogger("tailrace")
MOST_KEYS: Final = 64
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": "ES256", "Ed25519": "EdDSA"}
_KINDS: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
# Shorter ones can be broken, and longer ones take milliseconds to verify with.
_SHORTEST_RSA, _LONGEST_RSA = 2048, 4096


class NoSet(ValueError):  # noqa: N818 - a fact about what came
    """What came is no set of keys."""


def public_keys(content: bytes, origin: str) -> list[dict[str, str]]:
    """The usable keys of a set, with what is needed of them; one that is not voids no other. Raises NoSet."""
    try:
        plain = orjson.loads(content)
    except ValueError:
        raise NoSet("it is no JSON") from None
    listed = plain.get("keys") if isinstance(plain, dict) else None
    if not isinstance(listed, list):
        raise NoSet("it has no list `keys`")
    found = []
    for number, each in enumerate(listed[:MOST_KEYS]):
        try:
            found.append(_public(each))
        except ValueError as error:
            log.warning("key %d of %s is not used: %s", number, origin, error)
    if not found:
        raise NoSet("it has no key that signatures can be verified with")
    return found


def _public(plain: object) -> dict[str, str]:
    if not isinstance(plain, Mapping):
        raise ValueError("it is no object")  # noqa: TRY004
    kind = plain.get("kty")
    fields = _KINDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise ValueError("it is of no kind that is public")
    operations = plain.get("key_ops")
    if plain.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        raise ValueError("it is not for signatures")
    kept = {name: plain[name] for name in ("kty", *fields, "kid", "alg") if plain.get(name) is not None}
    if not all(isinstance(value, str) and len(value) <= 2048 for value in kept.values()):
        raise ValueError("one of its fields is no text")
    if not good_for(kept):
        raise ValueError("no algorithm goes with it")
    key = loaded(kept)
    if kind == "RSA" and not _SHORTEST_RSA <= key.key_size <= _LONGEST_RSA:
        raise ValueError(f"it has {key.key_size} bits, and {_SHORTEST_RSA} to {_LONGEST_RSA} are taken")
    return kept


def loaded(plain: Mapping[str, str]) -> Any:
    """The key itself; raises ValueError."""
    # A set may leave out `alg`; which algorithms a key is good for is decided here, by what it is.
    algorithm = good_for(plain)[0]
    try:
        return jwt.PyJWK(dict(plain), algorithm=algorithm).key
    except Exception as error:
        raise ValueError(f"it cannot be read ({type(error).__name__})") from None


def good_for(plain: Mapping[str, str]) -> Sequence[str]:
    """The algorithms that a key may be used with: those of its kind, or the one that it says of them."""
    of_kind = _RSA if plain.get("kty") == "RSA" else tuple(filter(None, [_CURVES.get(plain.get("crv", ""))]))
    said = plain.get("alg")
    return of_kind if said is None else [name for name in of_kind if name == said]
