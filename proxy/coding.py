"""Compressed bodies: requests are decoded within a bound."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zstandard
from tailrace.proxy.body import invalid
from tailrace.proxy.fault import Reject, too_large

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

_AT_ONCE = 8 * 1024
_FREE = 1 << 20
_WINDOW = 1 << 23
_PIECE = 512
_MEMBERS = 1024
_MEMBER = 1024
"""A body may have so many members of gzip, and one more for so many bytes: each costs time, be it empty."""


async def unpack(call: Call) -> None:
    """Decode a request's body, a large one in a thread; raises Reject as `decode` does."""
    limits, encoding = call.chain.limits, call.head.folded[b"content-encoding"]
    bound = Bound(limits.body, limits.expansion)
    if len(call.raw) <= _AT_ONCE:
        call.replace(decode(call.raw, encoding, bound))
    else:
        call.replace(await call.offload(decode, call.raw, encoding, bound))


@dataclass(frozen=True, slots=True)
class Bound:
    """The bytes that a body may have once it is decoded, and how many times what was sent that may be."""

    most: int
    times: int

    def of(self, size: int) -> int:
        """The bound of a body of which `size` bytes were sent."""
        return min(self.most, max(_FREE, size * self.times))

    def passed(self, size: int) -> Reject:
        """The refusal of a body that is larger."""
        if self.of(size) == self.most:
            return too_large(self.most)
        text = f"The compressed request body is more than {self.times} times as large as what was sent."
        return Reject(413, "request_too_large", text, kind="bad_request")


def decode(data: bytes, encoding: bytes, bound: Bound) -> bytes:
    """A request body decoded once; raises Reject(400) for a broken one, 413 for a bomb, 415 for an unknown coding."""
    match encoding.strip().lower():
        case b"identity" | b"":
            return data
        case b"gzip" | b"x-gzip":
            return _gunzip(data, bound)
        case b"deflate":
            return _inflate(data, 15 if data[:1] == b"\x78" else -15, bound)
        case b"zstd":
            return _unzstd(data, bound)
    raise Reject(
        415,
        "unsupported_encoding",
        "The request body's Content-Encoding must be gzip, deflate or zstd, applied once.",
        kind="bad_request",
    )


def _broken() -> Reject:
    return Reject(400, "invalid_request_error", "The compressed request body is damaged.", kind="bad_request")


def _inflate(data: bytes, window: int, limits: Bound) -> bytes:
    bound = limits.of(len(data))
    inflater = zlib.decompressobj(window)
    try:
        out = inflater.decompress(data, bound + 1)
    except zlib.error:
        raise _broken() from None
    if len(out) > bound:
        raise limits.passed(len(data))
    if not inflater.eof or inflater.unused_data:
        raise _broken()
    return out


def _gunzip(data: bytes, limits: Bound) -> bytes:
    """Gzip, of one member or of several whose contents are one body."""
    bound, members = limits.of(len(data)), _MEMBERS + len(data) // _MEMBER
    view, at, out = memoryview(data), 0, bytearray()
    inflater = zlib.decompressobj(31)
    try:
        # In pieces, because a member's end has all that is behind it copied.
        while at < len(data):
            if inflater.eof:
                inflater = zlib.decompressobj(31)
                members -= 1
            piece = view[at : at + _AT_ONCE]
            out += inflater.decompress(piece, bound + 1 - len(out))
            if len(out) > bound:
                raise limits.passed(len(data))
            at += len(piece) - len(inflater.unused_data)
            if not members:
                raise invalid("The compressed request body has too many members.")
    except zlib.error:
        raise _broken() from None
    if not inflater.eof:
        raise _broken()
    return bytes(out)


def _unzstd(data: bytes, limits: Bound) -> bytes:
    bound = limits.of(len(data))
    out = bytearray()
    inflater = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
    try:
        # In small pieces, because the decoder has no bound of its own: a piece can only blow up so far.
        for at in range(0, len(data), _PIECE):
            if inflater.eof:
                raise _broken()
            out += inflater.decompress(data[at : at + _PIECE])
            if len(out) > bound:
                raise limits.passed(len(data))
    except zstandard.ZstdError:
        raise _broken() from None
    if not inflater.eof or inflater.unused_data:
        raise _broken()
    return bytes(out)
