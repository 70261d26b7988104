"""Compressed bodies: requests are decoded within a bound."""

from __future__ import annotations

import zlib

import zstandard
from tailrace.proxy.fault import Reject, too_large

MAX_RATIO = 200
_WINDOW = 1 << 23
_PIECE = 512


def decode(data: bytes, encoding: bytes, limit: int) -> bytes:
    """A request body decoded once; raises Reject(400) for a broken one, 413 for a bomb, 415 for an unknown coding."""
    match encoding.strip().lower():
        case b"identity" | b"":
            return data
        case b"gzip" | b"x-gzip":
            return _inflate(data, 31, limit)
        case b"deflate":
            return _inflate(data, 15 if data[:1] == b"\x78" else -15, limit)
        case b"zstd":
            return _unzstd(data, limit)
    raise Reject(
        415,
        "unsupported_encoding",
        "The request body's Content-Encoding must be gzip, deflate or zstd, applied once.",
        kind="bad_request",
    )


def _broken() -> Reject:
    return Reject(400, "invalid_request_error", "The compressed request body is damaged.", kind="bad_request")


def _bounded(limit: int, size: int) -> int:
    return min(limit, max(1 << 20, size * MAX_RATIO))


def _inflate(data: bytes, window: int, limit: int) -> bytes:
    bound = _bounded(limit, len(data))
    inflater = zlib.decompressobj(window)
    try:
        out = inflater.decompress(data, bound + 1)
    except zlib.error:
        raise _broken() from None
    if len(out) > bound:
        raise too_large(bound)
    if not inflater.eof or inflater.unused_data:
        raise _broken()
    return out


def _unzstd(data: bytes, limit: int) -> bytes:
    bound = _bounded(limit, len(data))
    out = bytearray()
    inflater = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
    try:
        # In small pieces, because the decoder has no bound of its own: a piece can only blow up so far.
        for at in range(0, len(data), _PIECE):
            if inflater.eof:
                raise _broken()
            out += inflater.decompress(data[at : at + _PIECE])
            if len(out) > bound:
                raise too_large(bound)
    except zstandard.ZstdError:
        raise _broken() from None
    if not inflater.eof or inflater.unused_data:
        raise _broken()
    return bytes(out)
