"""Which headers cross the gateway, in each direction. One policy for every route."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.proxy.head import HeaderList

HOP_BY_HOP = frozenset(
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
CREDENTIALS = frozenset(
    {
        b"authorization",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"cookie",
        b"api-key",
        b"x-api-key",
        b"x-goog-api-key",
        b"ocp-apim-subscription-key",
    }
)
_CREDENTIAL_ENDINGS = (b"-api-key", b"-token", b"-secret", b"-authorization", b"-subscription-key")

# Replaced by the gateway's own, or about the connection that ends here.
_OWN = frozenset(
    {
        b"host",
        b"content-length",
        b"expect",
        b"accept-encoding",
        b"content-encoding",
        b"forwarded",
        b"via",
        b"x-real-ip",
        b"x-request-id",
        b"true-client-ip",
        b"cf-connecting-ip",
        b"fastly-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
    }
)
_DROPPED_REQUEST = HOP_BY_HOP | CREDENTIALS | _OWN
_DROPPED_PREFIXES = (b"x-tailrace-", b"x-forwarded-")

_DROPPED_ANSWER = HOP_BY_HOP | {
    b"content-length",
    b"server",
    b"set-cookie",
    b"strict-transport-security",
    b"alt-svc",
    b"public-key-pins",
    b"content-security-policy",
    b"proxy-authenticate",
}
_DROPPED_ANSWER_PREFIXES = (b"x-tailrace-", b"access-control-")


def forwarded(headers: HeaderList, keep: frozenset[bytes]) -> bytes:
    """A client's headers as lines for the worker; `keep` names credentials that are passed on by configuration."""
    lines = []
    named = None
    for name, value in headers:
        low = name.lower()
        if low in _DROPPED_REQUEST:
            if low in keep:
                lines.append(b"%b: %b\r\n" % (low, value))
            elif low == b"connection" and value.lower() not in (b"keep-alive", b"close"):
                named = {token.strip() for token in value.lower().split(b",")}
            continue
        if low.startswith(_DROPPED_PREFIXES) or (low.endswith(_CREDENTIAL_ENDINGS) and low not in keep):
            continue
        lines.append(b"%b: %b\r\n" % (low, value))
    if named:
        lines = [line for line in lines if line.split(b":", 1)[0] not in named]
    return b"".join(lines)


def answered(headers: HeaderList, keep: frozenset[bytes] = frozenset()) -> HeaderList:
    """A worker's headers as a client may see them; the worker's own request id is kept under another name."""
    out = []
    for pair in headers:
        name = pair[0]
        if name in _DROPPED_ANSWER or name.startswith(_DROPPED_ANSWER_PREFIXES):
            if name in keep:
                out.append(pair)
        elif name == b"x-request-id":
            out.append((b"x-upstream-request-id", pair[1]))
        else:
            out.append(pair)
    return out


def listed(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of `name`, which is in lower case like the list's names."""
    for key, value in headers:
        if key == name:
            return value
    return None


def safe_value(text: str, limit: int = 256) -> bytes:
    """Text as a header value: percent-encoded where it is not plain printable ASCII, and cut."""
    out = bytearray()
    for byte in text.encode("utf-8", "replace")[:limit]:
        if 0x20 <= byte < 0x7F and byte != 0x25:
            out.append(byte)
        else:
            out += b"%%%02X" % byte
    return bytes(out)
