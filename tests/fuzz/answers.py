"""What a client got, read as strictly as HTTP can be read: any answer must be whole, or the last and plainly cut."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5]\d\d)(?: [\x20-\x7e]*)?\Z")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+): ?([^\x00-\x08\x0a-\x1f\x7f]*)\Z")
_SIZE = re.compile(rb"[0-9a-f]{1,8}\Z")


class CorruptedError(AssertionError):
    """The bytes are no sequence of HTTP answers."""


@dataclass
class Got:
    """One answer; `complete` is False for the last one where the connection ended in it."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes = b""
    complete: bool = False
    chunks: list[bytes] = field(default_factory=list)


def read_all(data: bytes) -> list[Got]:
    """Every answer in what a connection brought; raises CorruptedError."""
    found = []
    while data:
        got, data = _read_one(data)
        if got is None:
            break
        found.append(got)
        if not got.complete and data:
            raise CorruptedError(f"bytes behind an answer that has no end: {data[:100]!r}")
    return found


def _read_one(data: bytes) -> tuple[Got | None, bytes]:
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        if not b"HTTP/1.1 ".startswith(data[:9]) and not data.startswith(b"HTTP/1.1 "):
            raise CorruptedError(f"no status line: {data[:100]!r}")
        return None, b""
    lines = head.split(b"\r\n")
    status = _STATUS.match(lines[0])
    if status is None:
        raise CorruptedError(f"status line {lines[0][:100]!r}")
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        match = _HEADER.match(line)
        if match is None:
            raise CorruptedError(f"header {line[:100]!r}")
        name = match.group(1).lower()
        if name in headers and name in (b"content-length", b"transfer-encoding"):
            raise CorruptedError(f"{name.decode()} twice")
        headers[name] = match.group(2)
    got = Got(int(status.group(1)), headers)
    return got, _read_body(got, rest)


def _read_body(got: Got, data: bytes) -> bytes:
    if got.status < 200 or got.status in (204, 304):
        got.complete = True
        return data
    if b"transfer-encoding" in got.headers:
        if b"content-length" in got.headers or got.headers[b"transfer-encoding"] != b"chunked":
            raise CorruptedError("two framings")
        return _read_chunks(got, data)
    length = got.headers.get(b"content-length")
    if length is None:
        got.body, got.complete = data, True
        return b""
    size = int(length)
    got.body, rest = data[:size], data[size:]
    got.complete = len(got.body) == size
    return rest


def _read_chunks(got: Got, data: bytes) -> bytes:
    while True:
        line, end, rest = data.partition(b"\r\n")
        if not end:
            if not re.fullmatch(rb"[0-9a-f]{0,8}\r?", line):
                raise CorruptedError(f"chunk size {line[:100]!r}")
            return b""
        if not _SIZE.match(line):
            raise CorruptedError(f"chunk size {line[:100]!r}")
        size = int(line, 16)
        if size == 0:
            if rest[:2] != b"\r\n"[: len(rest)]:
                raise CorruptedError(f"behind the last chunk: {rest[:100]!r}")
            got.complete = len(rest) >= 2
            return rest[2:]
        got.body += rest[:size]
        if rest[size : size + 2] != b"\r\n"[: max(0, len(rest) - size)]:
            raise CorruptedError(f"behind a chunk: {rest[size : size + 100]!r}")
        if len(rest) < size + 2:
            return b""
        got.chunks.append(rest[:size])
        data = rest[size + 2 :]
