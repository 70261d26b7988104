"""Which headers cross the gateway, in each direction. One policy for every route.

Each name of a client's header is classified once and remembered, in the spelling it came in. The memory is bounded:
a name of unusual length is classified every time, and a full memory begins anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
CREDENTIALS: Final = frozenset(
    {
        b"authorization",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"cookie",
        b"cookie2",
        b"api-key",
        b"apikey",
        b"x-apikey",
        b"x-auth",
        b"x-amzn-oidc-data",
        b"x-ms-client-principal",
    }
)
# A name with one of these words in it carries a secret, whatever else it says,
_SECRET_WORDS: Final = frozenset(
    {
        b"accesstoken",
        b"apikey",
        b"assertion",
        b"authentication",
        b"authorization",
        b"bearer",
        b"credential",
        b"credentials",
        b"jwt",
        b"passwd",
        b"password",
    }
)
# and so does one that ends in one of these, or that speaks of a key of one of those.
_SECRET_ENDS: Final = frozenset({b"auth", b"secret", b"token"})
_KEY_OF: Final = frozenset({b"access", b"api", b"auth", b"secret", b"subscription"})
_PAGING: Final = frozenset({b"continuation", b"next", b"page", b"start"})
_WORDS: Final = re.compile(rb"[-_.]")

# Replaced by the gateway's own, or about the connection that ends here.
_OWN: Final = frozenset(
    {
        b"accept-encoding",
        b"content-encoding",
        b"forwarded",
        b"x-real-ip",
        b"x-request-id",
        b"true-client-ip",
        b"cf-connecting-ip",
        b"fastly-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
    }
)
OWN_NAME: Final = b"tailrace"
MOST_HOPS: Final = 8
"""Edge, gateway and sidecar are three."""
OWN_PREFIX: Final = b"x-tailrace-"
# What a CDN says of where a client is: a worker could not tell it from what the client says itself.
_PLACE: Final = frozenset(
    {
        b"cf-region",
        b"cf-region-code",
        b"cf-metro-code",
        b"cf-postal-code",
        b"cf-timezone",
        b"x-akamai-edgescape",
        b"x-client-geo-location",
        b"x-country",
        b"x-country-code",
        b"x-nf-geo",
    }
)
_PLACE_PREFIXES: Final = (
    b"cf-ip",
    b"cloudfront-viewer-",
    b"fastly-geo-",
    b"geoip-",
    b"x-appengine-",
    b"x-geo-",
    b"x-geoip-",
    b"x-vercel-ip-",
)
_REQUEST_PREFIXES: Final = (OWN_PREFIX, b"x-forwarded-", *_PLACE_PREFIXES)
_ANSWER_DROPPED: Final = frozenset(
    {
        b"server",
        b"set-cookie",
        b"set-cookie2",
        b"strict-transport-security",
        b"alt-svc",
        b"public-key-pins",
        b"content-security-policy",
        b"content-security-policy-report-only",
        b"clear-site-data",
        b"nel",
        b"report-to",
        b"reporting-endpoints",
        b"service-worker-allowed",
        b"www-authenticate",
        b"proxy-authenticate",
    }
)
_ANSWER_PREFIXES: Final = (OWN_PREFIX, b"access-control-")
LOAD_HEADER: Final = b"x-tailrace-load"
STAGES_HEADER: Final = b"x-tailrace-stages"
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_REMEMBERED: Final = 2048
_LONG: Final = 64


# What becomes of a header; everything but PASS needs a closer look. Plain integers: an Enum member costs a dictionary
# search through its metaclass on every comparison.
PASS: Final = 0
DROP: Final = 1
CREDENTIAL: Final = 2
HOST: Final = 3
LENGTH: Final = 4
EXPECT: Final = 5
CONNECTION: Final = 6
CODING: Final = 7
REQUEST_ID: Final = 8
BAD: Final = 9
LOAD: Final = 10
VIA: Final = 11
STAGES: Final = 12

_NAMED: Final = {
    b"host": HOST,
    b"content-length": LENGTH,
    b"expect": EXPECT,
    b"connection": CONNECTION,
    b"transfer-encoding": CODING,
    b"x-request-id": REQUEST_ID,
    b"via": VIA,
}

request_rules: Final[dict[bytes, int]] = {}


def request_rule(name: bytes) -> int:
    """The rule for a client's header."""
    low = name.lower()
    rule = _NAMED.get(low)
    if rule is None:
        if low in CREDENTIALS or _is_secret(_WORDS.split(low)):
            rule = CREDENTIAL
        elif low in HOP_BY_HOP or low in _OWN or low in _PLACE or low.startswith(_REQUEST_PREFIXES):
            rule = DROP
        else:
            rule = PASS
    if len(name) <= _LONG:
        if len(request_rules) >= _REMEMBERED:
            request_rules.clear()
        request_rules[name] = rule
    return rule


def _is_secret(words: list[bytes]) -> bool:
    named = frozenset(words)
    return bool(named & _SECRET_WORDS or words[-1] in _SECRET_ENDS or (b"key" in named and named & _KEY_OF))


def is_secret_parameter(low: bytes) -> bool:
    """Whether a query parameter carries a credential; `low` is its decoded name in lower case.

    A token that leads to the next page of a list is none.
    """
    words = _WORDS.split(low)
    return low in CREDENTIALS or (_is_secret(words) and words[0] not in _PAGING)


def answer_rule(name: bytes) -> tuple[int, bytes]:
    """The rule for a worker's header, and its name in lower case."""
    low = name.lower()
    rule = _NAMED.get(low, PASS)
    if not _TOKEN.match(name):
        rule = BAD
    elif low == LOAD_HEADER:
        rule = LOAD
    elif low == STAGES_HEADER:
        rule = STAGES
    elif (
        rule in (HOST, EXPECT, VIA)
        or (low in HOP_BY_HOP and rule == PASS)
        or low in _ANSWER_DROPPED
        or low.startswith(_ANSWER_PREFIXES)
    ):
        rule = DROP
    return rule, low


def listed(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of `name`, which is in lower case like the list's names."""
    for key, value in headers:
        if key == name:
            return value
    return None


def without_named(lines: bytes, connection: bytes) -> bytes:
    """Header lines less those that a Connection header declares to be about this hop."""
    named = {token.strip().lower() for token in connection.split(b",")} - {b"keep-alive", b"close", b""}
    if not named:
        return lines
    return b"".join(
        line for line in lines.splitlines(keepends=True) if line.partition(b":")[0].strip().lower() not in named
    )


def via(hops: int) -> bytes:
    """The header line of so many gateways that a request has passed; what others say of themselves stays here."""
    return b"via: %b\r\n" % b", ".join([b"1.1 " + OWN_NAME] * hops)


def safe_value(text: str, limit: int = 256) -> bytes:
    """Text as a header value: percent-encoded where it is not plain printable ASCII, and cut."""
    out = bytearray()
    for byte in text.encode("utf-8", "replace")[:limit]:
        if 0x20 <= byte < 0x7F and byte != 0x25:
            out.append(byte)
        else:
            out += b"%%%02X" % byte
    return bytes(out)
