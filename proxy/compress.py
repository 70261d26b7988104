"""Compressed answers: the last stage before the socket, after every tap."""

from __future__ import annotations

import re
import zlib
from typing import Protocol

import zstandard
from tailrace.proxy.head import Head
from tailrace.proxy.settings import Compression

_COMPRESSIBLE = (b"application/json", b"text/", b"application/x-ndjson")
_CODING = re.compile(rb"\s*([a-zA-Z0-9*_-]+)\s*(?:;\s*q=([0-9.]+)\s*)?\Z")


class Encoder(Protocol):
    """Compresses a stream piece by piece; what `piece` returns can be decoded at once."""

    def piece(self, data: bytes) -> bytes:
        """One piece, flushed."""

    def end(self) -> bytes:
        """The rest."""


class GzipEncoder:
    """gzip with a sync flush after every piece."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(5, zlib.DEFLATED, 31)

    def piece(self, data: bytes) -> bytes:
        """One piece, flushed."""
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """The rest."""
        return self._deflate.flush(zlib.Z_FINISH)


class ZstdEncoder:
    """zstd with a block flush after every piece."""

    def __init__(self) -> None:
        self._stream = zstandard.ZstdCompressor(level=3).compressobj()

    def piece(self, data: bytes) -> bytes:
        """One piece, flushed."""
        return self._stream.compress(data) + self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def end(self) -> bytes:
        """The rest."""
        return self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)


def chosen(settings: Compression, accept: bytes | None, head: Head) -> str | None:
    """The coding for an answer, None where it goes uncompressed."""
    if not accept or not settings.codings or head.get(b"content-encoding") is not None:
        return None
    kind = head.get(b"content-type") or b""
    if not kind.lower().startswith(_COMPRESSIBLE):
        return None
    offered = _accepted(accept)
    return next(
        (coding for coding in settings.codings if offered.get(coding.encode(), offered.get(b"*", 0.0)) > 0), None
    )


def _accepted(accept: bytes) -> dict[bytes, float]:
    accepted = {}
    for part in accept.split(b","):
        found = _CODING.match(part)
        if found is not None:
            try:
                accepted[found.group(1).lower()] = float(found.group(2) or 1)
            except ValueError:
                continue
    return accepted


def encoder(coding: str) -> Encoder:
    """A fresh encoder."""
    return ZstdEncoder() if coding == "zstd" else GzipEncoder()


def whole(coding: str, body: bytes) -> bytes:
    """A whole body at once."""
    if coding == "zstd":
        return zstandard.ZstdCompressor(level=3).compress(body)
    deflate = zlib.compressobj(5, zlib.DEFLATED, 31)
    return deflate.compress(body) + deflate.flush()


def mark(head: Head, coding: str) -> None:
    """Say in the head that the body is compressed."""
    head.set(b"content-encoding", coding.encode())
    vary = head.get(b"vary")
    if vary is None or b"accept-encoding" not in vary.lower():
        head.set(b"vary", b"%b, accept-encoding" % vary if vary else b"accept-encoding")
