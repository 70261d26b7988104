"""Heads of answers as bytes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from tailrace.proxy.head import Head
from tailrace.proxy.headers import HOP_BY_HOP

_STATUS: Final = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}

_OURS: Final = HOP_BY_HOP | {b"content-length", b"x-request-id"}
# Answers say the same lines nearly every time; the memory of them is bounded.
_REMEMBERED: Final = 1024
_LONG: Final = 512
_lines: Final[dict[tuple[bytes, bytes], bytes]] = {}


def head_lines(head: Head, request_id: str) -> bytes:
    """Status line, headers and our request id, without framing headers and without the empty line.

    A value with a line break in it (a plugin's mistake, or an attack through one) loses everything from there on. What
    a plugin says of the framing or the id is left out: only the core can know.
    """
    lines = [_STATUS.get(head.status) or b"HTTP/1.1 %d \r\n" % head.status]
    for pair in head.headers:
        line = _lines.get(pair)
        lines.append(_line_of(pair) if line is None else line)
    lines.append(b"x-request-id: %b\r\n" % request_id.encode())
    return b"".join(lines)


def _line_of(pair: tuple[bytes, bytes]) -> bytes:
    """A header line that was not written before."""
    name, value = pair
    name = _one_line(name)
    line = b"" if name.strip().lower() in _OURS else b"%b: %b\r\n" % (name, _one_line(value))
    if len(pair[0]) + len(value) <= _LONG:
        if len(_lines) >= _REMEMBERED:
            _lines.clear()
        _lines[pair] = line
    return line


def _one_line(text: bytes) -> bytes:
    return text.replace(b"\r", b"\n").partition(b"\n")[0]
